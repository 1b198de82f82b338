// SPDX-License-Identifier: Apache-2.0
// A gather by joined devices, of values that reside on them: its memory, the parts that travel, and
// the order of the launches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "device/device_group.h"
#include "unit/unit.h"

namespace meron {

class GatherByDevices {
 public:
  // The units must stay.
  explicit GatherByDevices(std::span<const std::shared_ptr<Unit>> units) : units_(units) {}

  // Takes the memory. MERON_E_NO_MEMORY.
  Status reserve();
  // See GatherOperation.
  std::optional<uint64_t> place_in_window(uint64_t* detail) const;
  // Launches everything, and leases each unit's full values on the device. `leased` counts these
  // leases, even if one fails.
  Status launch(const DeviceGroup::Call& call, size_t& leased);

 private:
  struct EncodedRow;
  static Status encode_part(const EncodedRow& row);
  static Status decode_row(const EncodedRow& row);
  Status move_into_window(std::vector<DeviceGroup::Part>& rows) const;
  void add_parts(size_t unit, std::vector<DeviceGroup::Part>& parts,
                 std::vector<EncodedRow>& encoded) const;
  // Address of a full row, if full values are gathered from rows.
  std::byte* row_of(size_t unit, size_t flat) const;

  const std::span<const std::shared_ptr<Unit>> units_;
  // By unit and flat, until they are launched: full values; rows, if this rank holds parts; and
  // encoded parts, with a codec.
  std::vector<std::vector<DeviceMemory>> rooms_, rows_, slots_;
};

// For a gather on the host, which reads rows. If replicas hold the same rows, these get the parts
// that the others have updated.
Status refresh_rows_on_device(std::span<const std::shared_ptr<Unit>> units,
                              const DeviceGroup::Call& call);

}  // namespace meron

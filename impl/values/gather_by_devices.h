// SPDX-License-Identifier: Apache-2.0
// What joined devices gather by themselves, from what lies on them: the memory that it takes, what
// of it travels, and the order in which they are asked for it.
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
  // Asks the devices for all, and leases the whole values that each unit then has there. `leased`
  // counts these leases, also if one fails.
  Status launch(const DeviceGroup::Call& call, size_t& leased);

 private:
  struct EncodedRow;
  static Status encode_part(const EncodedRow& row);
  static Status decode_row(const EncodedRow& row);
  Status move_into_window(std::vector<DeviceGroup::Part>& rows) const;
  void add_parts(size_t unit, std::vector<DeviceGroup::Part>& parts,
                 std::vector<EncodedRow>& encoded) const;
  // Where a whole row lies, of those by whose rows whole values are gathered.
  std::byte* row_of(size_t unit, size_t flat) const;

  const std::span<const std::shared_ptr<Unit>> units_;
  // By unit and flat, until they are launched: whole values; where this rank has parts, rows, and
  // parts as they travel with a codec.
  std::vector<std::vector<DeviceMemory>> rooms_, rows_, slots_;
};

// For a gather that goes by the host, which reads rows: those that replicas hold alike get what the
// others have updated.
Status refresh_rows_on_device(std::span<const std::shared_ptr<Unit>> units,
                              const DeviceGroup::Call& call);

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
// An update: units opened for writing by the trainer, then published as the next version.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "collective/operation.h"
#include "unit/unit.h"

namespace meron {

class UpdateOperation final : public Operation {
 public:
  // Of units that the caller has checked (Unit::check_updatable). Takes the memory that begin()
  // needs.
  static std::shared_ptr<UpdateOperation> prepare(std::vector<std::shared_ptr<Unit>> units,
                                                  Deadline deadline);
  // The call has been posted.
  Status begin(uint64_t sequence);
  const std::vector<std::shared_ptr<Unit>>& units() const { return units_; }

  // Ends when every rank has released the present versions.
  Result<bool> advance() override;
  std::vector<int> missing() const override;
  std::string describe() const override;
  std::string waits_for_drive() const override;

  bool contains(const Param& param) const;
  // This rank's part, for the caller to write; it is taken over into the f32 master at publish().
  Range view(const Param& param, std::byte** data);
  // Writes this rank's part from the whole tensor.
  Status write(const Param& param, const std::byte* data, DType dtype);
  // Once.
  Status publish();
  // True if this rank has written, or may have written, any of its values.
  bool touched() const { return touched_; }

 private:
  UpdateOperation(std::vector<std::shared_ptr<Unit>> units, Deadline deadline);

  std::vector<std::shared_ptr<Unit>> units_;
  std::vector<const Param*> viewed_;
  bool opened_ = false;
  bool published_ = false;
  bool touched_ = false;
};

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
// Opens a bucket at the start of a micro-batch.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gradient/gradient.h"

namespace meron {

// Waits, on this rank alone, until the unit's bucket may be written, and then opens it. Not a
// collective: it is not posted.
class OpenBucketOperation final : public Operation {
 public:
  OpenBucketOperation(std::shared_ptr<Unit> unit, Deadline deadline);
  Result<bool> advance() override;
  std::vector<int> missing() const override;
  Channel& missing_in() const override;
  std::shared_ptr<Operation> behind() const override;
  std::string describe() const override;
  const Unit& unit() const { return *unit_; }

 private:
  Result<bool> may_write();
  Result<bool> take_from_ring();
  Result<Buffer> replace(const Buffer& old);
  Status check_hope() const;
  // Records the reduction whose readers hold up a bucket, for missing().
  void wait_for(const Gradient& user, uint64_t reduction, bool between);

  std::shared_ptr<Unit> unit_;
  const Gradient* waiting_for_ = nullptr;
  uint64_t waiting_reduction_ = 0;
  bool waiting_between_ = false;  // replicas too
};

// MERON_E_STATE if another thread began the reduction while this one waited for the bucket.
Status check_filling(const Unit& unit);

}  // namespace meron

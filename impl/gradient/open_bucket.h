// SPDX-License-Identifier: Apache-2.0
// The begin of a micro-batch: a bucket that may be written.
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
  // Peers still read a bucket's last reduction.
  void wait_for(const Gradient& user, uint64_t reduction, bool between);

  std::shared_ptr<Unit> unit_;
  const Gradient* waiting_for_ = nullptr;
  uint64_t waiting_reduction_ = 0;
  bool waiting_between_ = false;  // replicas too
};

// After the wait for a bucket: MERON_E_STATE when another thread has taken it further meanwhile.
Status check_filling(const Unit& unit);

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
// The bucket: where a rank's gradient of a unit is written before peers read it in place.
//
// Where gradients are whole, each unit has a bucket of its own that also accumulates. Where they
// are sharded, units take buckets from the rank's ring in turn. Either way a bucket may be written
// again only when every peer has consumed the reduction that it was last read for.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "collective/operation.h"
#include "param/unit.h"

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
  Result<bool> take_from_ring();
  Status check_hope() const;

  std::shared_ptr<Unit> unit_;
  const Unit* waiting_for_ = nullptr;  // peers still read its reduction waiting_reduction_
  uint64_t waiting_reduction_ = 0;
  bool waiting_between_ = false;  // replicas too
};

// After the wait for a bucket: MERON_E_STATE when another thread has taken it further meanwhile.
Status check_filling(const Unit& unit);

// The rest is for units whose state is `filling`.

// Where the gradient of a param goes, in the gradient dtype. What the micro-batch has not written
// yet is zeroed first unless `overwrite`.
std::byte* gradient_place(Unit& unit, size_t param, bool overwrite);

// Adds (or, first in an accumulation, copies) a gradient.
void add_gradient(Unit& unit, size_t param, const std::byte* data, DType dtype);

// What add_gradient() does with the data once the place is taken: `first` in an accumulation.
void put_gradient(Unit& unit, size_t param, const std::byte* data, DType dtype, bool first);

// Zeroes what nobody wrote in this accumulation.
void complete_bucket(Unit& unit);

// The index of a param in its unit.
size_t index_in_unit(const Unit& unit, const Param& param);

}  // namespace meron

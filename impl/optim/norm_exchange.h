// SPDX-License-Identifier: Apache-2.0
// The exact global norm of reduced gradients. Each rank publishes the sum of squares of its shards
// in the shared segment, and adds those of all ranks. The total does not depend on how the
// gradients are sharded, so every world size and plan gets the same bits.
//
// Operations that exchange are staged: those of a group run one after the other, because they share
// the slots of MemberBlock::norm.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "call_log/channel.h"
#include "kernels/cpu/exact_sum.h"
#include "optim/nonfinite.h"
#include "unit/unit.h"

namespace meron {

class NormExchange {
 public:
  explicit NormExchange(Channel& channel) : channel_(channel) {}

  // Shares this rank's squares and place for all others to read. The next call begins another
  // round, after all ranks have ended this one.
  void publish(const kernels::ExactSum& squares, const NonFinitePlace& place);
  bool published() const { return number_ != 0; }
  bool all_published() const;
  std::vector<int> missing() const;  // members that have not published

  // Once all have published.
  kernels::ExactSum total() const;
  NonFinitePlace place_of(int member) const;
  // The first place of the ranks, and how many other ranks have one; empty: none has.
  std::string places(std::span<const std::shared_ptr<Unit>> units) const;

 private:
  Channel& channel_;
  uint64_t number_ = 0;
};

// The sum of squares of this rank's shards of the units' reduced gradients, and the first place
// that is not finite. Computes Gradient::squares where they are not known.
struct OwnSquares {
  kernels::ExactSum squares;
  NonFinitePlace place;
};
Result<OwnSquares> own_squares(std::span<const std::shared_ptr<Unit>> units);

// MERON_E_STATE, which names the unit, unless its gradient is reduced.
Status check_reduced(const Unit& unit);

// The factor that scales gradients of that norm to at most `max_norm`; 1 for a max_norm of 0. As
// torch.nn.utils.clip_grad_norm_: the small term keeps a zero norm from dividing.
double clip_factor(double norm, double max_norm);

// Describes why a norm is not finite. `places`: of NormExchange.
std::string nonfinite_text(double norm, const std::string& places);

}  // namespace meron

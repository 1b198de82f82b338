// SPDX-License-Identifier: Apache-2.0
// A unit's gradient on this rank: the state of its accumulation and of its sum. memory.h holds the
// buffers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "collective/operation.h"
#include "gradient/memory.h"
#include "gradient/states.h"
#include "kernels/cpu/exact_sum.h"

namespace meron {

class GradientOnHost;

// An element of a unit.
struct FlatElement {
  size_t flat = 0;
  uint64_t element = 0;
};

class Gradient {
 public:
  // Creates the unit's gradient and its memory. After MERON_E_NO_MEMORY or MERON_E_DEVICE the unit
  // is unchanged.
  static Status attach(Unit& unit);
  ~Gradient();
  Gradient(const Gradient&) = delete;
  Gradient& operator=(const Gradient&) = delete;

  Unit& unit() const { return unit_; }
  GradientState state() const { return state_; }
  Status enter(GradientState state);  // MERON_E_INTERNAL for a transition that states.h forbids
  GradientMemory& memory() const { return *memory_; }
  // Null if the gradient is on the device.
  GradientOnHost* on_host() const { return host_; }

  // The dtype of a flat's bucket now.
  DType type_of(const Flat& flat) const {
    return gradient_dtype(unit_.rank().plan, flat.desc.dtype, widened ? 2 : 1);
  }

  // Closes the bucket if it is open. Nothing has been added to it.
  Status close_bucket();

  // The accumulation.
  std::vector<bool> fresh;                     // per param: nothing of it is in the bucket yet
  bool started = false;                        // the sum holds earlier micro-batches
  bool at_boundary = false;                    // the last reduction begun ends it
  bool finishing = false;                      // a FinishOperation will end it
  bool adds = false;                           // the open bucket holds earlier micro-batches
  bool widened = false;                        // buckets that may become f32 are f32
  std::weak_ptr<Operation> reduction, finish;  // the last ones begun
  // Sum of the squares of this rank's part of a complete sum, if known. Reductions compute it for
  // units that have an optimizer.
  std::optional<kernels::ExactSum> squares;
  struct {
    uint32_t clips = 0;  // operations under way that measure the sum, and may scale it
    uint32_t loans = 0;  // tensors of other libraries that show it
  } users;
  // MERON_E_STATE if the sum is lent. `action`: for which it must not be, as "step the optimizer".
  Status check_not_lent(const char* action) const;

  // Announces the dtype of this rank's buckets in the next reduction to peers. Called before that
  // reduction's call is posted.
  void announce_type();

  // Numbers of reductions and of exchanges between replicas that have begun. `between`: the last
  // reduction was such an exchange.
  uint64_t reductions = 0, exchanges = 0;
  bool between = false;
  // The codec in use: the plan's, or bf16 once the error was above the plan's limit.
  Codec codec;
  struct {
    double relative = 0;  // of the rows that this rank encoded last
    float worst = 0;      // of their worst block
  } error;
  // True if review_codec() checks the errors of the previous exchange.
  bool reviews_codec() const { return codec.error_limit > 0.0 && exchanges > 1; }
  // Falls back to bf16 if a rank's error in the previous exchange was above the limit. Called when
  // an exchange has begun and is not encoded yet: all ranks have encoded the previous one.
  Status review_codec();
  // True if the codec's feedback, its error in gradients so far, is kept. A reduction then changes
  // the saved state.
  bool keeps_feedback() const;
  Status drop_feedback();
  // Multiplies the feedback, so that it has the scale of the gradients that follow.
  Status scale_feedback(float factor);
  // Called before replicas exchange a sum that will be multiplied by `scale`. At the first exchange
  // of an accumulation, rescales the feedback so that it counts as much as in the previous one.
  Status begin_exchange(float scale);
  // True once replicas have exchanged gradients of this accumulation. The feedback then belongs to
  // it.
  bool exchanged() const { return fed_.present; }
  // The first element that was not finite before this rank encoded it, in this accumulation. After
  // decoding, all of its block is NaN.
  std::optional<FlatElement> nonfinite;

  // MERON_E_STATE if this rank still uses the gradient, so that the unit cannot be destroyed.
  Status check_destroyable() const;
  // Removes the gradient from the rank's ring. No operation of this rank uses it any more.
  void detach();
  // Releases all memory. Every rank has detached the gradient.
  void give_back();

 private:
  explicit Gradient(Unit& unit);

  Unit& unit_;
  GradientState state_ = GradientState::empty;
  // The sum to which feedback was last added.
  struct {
    bool present = false;  // of this accumulation
    float scale = 0;       // 0: not known
  } fed_;
  GradientOnHost* host_ = nullptr;
  std::unique_ptr<GradientMemory> memory_;
};

}  // namespace meron

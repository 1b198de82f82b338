// SPDX-License-Identifier: Apache-2.0
// A unit's gradient on this rank: how far its accumulation is, and what is known of its sum. Where
// it lies is the business of memory.h.
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

// Of a unit.
struct FlatElement {
  size_t flat = 0;
  uint64_t element = 0;
};

class Gradient {
 public:
  // Gives the unit one, with its memory. MERON_E_NO_MEMORY, MERON_E_DEVICE: the unit is as before.
  static Status attach(Unit& unit);
  ~Gradient();
  Gradient(const Gradient&) = delete;
  Gradient& operator=(const Gradient&) = delete;

  Unit& unit() const { return unit_; }
  GradientState state() const { return state_; }
  Status enter(GradientState state);  // MERON_E_INTERNAL for a transition that states.h forbids
  GradientMemory& memory() const { return *memory_; }
  // Null where it lies on the device.
  GradientOnHost* on_host() const { return host_; }

  // The dtype of a flat's bucket now.
  DType type_of(const Flat& flat) const {
    return gradient_dtype(unit_.rank().plan, flat.desc.dtype, widened ? 2 : 1);
  }

  // Puts back a bucket that was opened and that nothing was added to; else nothing.
  Status close_bucket();

  // The accumulation.
  std::vector<bool> fresh;                     // per param: nothing of it is in the bucket yet
  bool started = false;                        // the sum holds earlier micro-batches
  bool at_boundary = false;                    // the last reduction begun ends it
  bool finishing = false;                      // a FinishOperation is to end it
  bool adds = false;                           // the open bucket holds earlier micro-batches
  bool widened = false;                        // buckets that may become f32 are f32
  std::weak_ptr<Operation> reduction, finish;  // the last ones begun
  // Of this rank's part of a complete sum, if known: reductions compute them for units that have an
  // optimizer.
  std::optional<kernels::ExactSum> squares;

  // Lets peers know the dtype of this rank's buckets in the next reduction: before its call is
  // posted.
  void announce_type();

  // Reductions begun so far: the value that UnitSlot::contributed was last set to. Exchanges
  // between replicas, and whether the last reduction was one.
  uint64_t reductions = 0, exchanges = 0;
  bool between = false;
  // In use: the plan's, or bf16 once the error was above the plan's limit. What encoding has lost.
  Codec codec;
  double error = 0;  // relative, of what this rank encoded last
  float worst = 0;   // worst block
  // Before an exchange that has begun is encoded: whether errors of the one before are to be looked
  // at. And falls back if one was above the limit: all ranks have encoded the exchange before.
  bool reviews_codec() const { return codec.error_limit > 0.0 && exchanges > 1; }
  Status review_codec();
  // The codec's feedback, which is its error in gradients so far. True if a reduction keeps it, and
  // so changes the saved state.
  bool keeps_feedback() const;
  Status drop_feedback();
  // Multiplies it, as the gradients that follow are multiplied.
  Status scale_feedback(float factor);
  // Before replicas exchange a sum that is multiplied by `scale` in the end. At the start of an
  // accumulation, this lets feedback count as much as it did in the one before.
  Status begin_exchange(float scale);
  // True once replicas have exchanged gradients of this accumulation: feedback belongs to it then.
  bool exchanged() const { return fed_.present; }
  // The first element that was not finite before this rank encoded it, in this accumulation. After
  // decoding, all of its block is NaN.
  std::optional<FlatElement> nonfinite;

  // The end. What stands on this rank against the destruction of the unit: MERON_E_STATE. No
  // operation of this rank meets it any more. Gives everything back, once that is so on every rank.
  Status check_destroyable() const;
  void detach();
  void give_back();

 private:
  explicit Gradient(Unit& unit);

  Unit& unit_;
  GradientState state_ = GradientState::empty;
  // The sum that feedback was last a part of.
  struct {
    bool present = false;  // of this accumulation
    float scale = 0;       // 0: not known
  } fed_;
  GradientOnHost* host_ = nullptr;
  std::unique_ptr<GradientMemory> memory_;
};

}  // namespace meron

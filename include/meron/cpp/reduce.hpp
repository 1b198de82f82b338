// SPDX-License-Identifier: Apache-2.0
// meron/cpp/reduce.hpp: reduction of gradients to their owners.
#ifndef MERON_CPP_REDUCE_HPP
#define MERON_CPP_REDUCE_HPP

#include <chrono>
#include <initializer_list>

#include "meron/cpp/param.hpp"
#include "meron/cpp/values.hpp"
#include "meron/reduce.h"

namespace meron {
inline namespace MERON_CPP_NAMESPACE {

// Content of the memory for a gradient at the start of a micro-batch.
enum class GradientStart : uint64_t {
  zero = 0,                              // zero, or the sum so far: the caller adds to it
  overwrite = MERON_GRADIENT_OVERWRITE,  // anything: the caller writes every element
};

// The memory in this rank's bucket for the gradient of `param`, in the plan's gradient dtype, until
// reduce_begin of its unit. Blocks on peers that still read its last contents.
inline MutableView gradient(const Param& param, GradientStart start = GradientStart::zero) {
  return MutableView(
      detail::receive(meron_gradient_view, param.handle(), static_cast<uint64_t>(start)));
}

// A gradient in the caller's memory, for reduce_begin: the full tensor, of any dtype; a range, or
// one element.
template <class Memory, detail::Lasting<Memory> = 0>
meron_source source(const Param& param, Memory&& whole) {
  const auto data = detail::memory_of(whole);
  meron_source made{};
  made.param = param.handle();
  made.data = data.data();
  made.count = data.size();
  made.dtype = static_cast<meron_dtype>(dtype_of<typename decltype(data)::value_type>);
  return made;
}

template <class Memory, detail::Temporary<Memory> = 0>
meron_source source(const Param& param, Memory&& whole) = delete;  // it would dangle

// The same in memory of the context's device: `count` elements, which are not checked.
inline meron_source device_source(const Param& param, const void* data, uint64_t count,
                                  DType dtype) {
  meron_source made{};
  made.param = param.handle();
  made.data = data;
  made.count = count;
  made.dtype = static_cast<meron_dtype>(dtype);
  return made;
}

// Begins the reduction of a unit's gradients of one micro-batch, which were written to gradient().
// Collective over the unit's group.
[[nodiscard]] inline Future reduce_begin(const Unit& unit, const ReduceOptions& options = {}) {
  const meron_reduce_options raw = options.raw();
  return Future(adopt,
                detail::receive(meron_reduce_begin, unit.handle(), nullptr, size_t{0}, &raw));
}
// The same from the caller's memory. It is read during the call; memory of a device, until the
// reduction has ended; params without a source count as zero. Blocks as gradient does.
[[nodiscard]] inline Future reduce_begin(const Unit& unit, Span<const meron_source> sources,
                                         const ReduceOptions& options = {}) {
  const meron_reduce_options raw = options.raw();
  return Future(adopt, detail::receive(meron_reduce_begin, unit.handle(), sources.data(),
                                       sources.size(), &raw));
}
[[nodiscard]] inline Future reduce_begin(const Unit& unit,
                                         std::initializer_list<meron_source> sources,
                                         const ReduceOptions& options = {}) {
  return reduce_begin(unit, Span<const meron_source>(sources.begin(), sources.size()), options);
}

// The same three, and wait until the reduction has ended.
inline void reduce(const Unit& unit, const ReduceOptions& options = {}) {
  reduce_begin(unit, options).wait();
}
inline void reduce(const Unit& unit, Span<const meron_source> sources,
                   const ReduceOptions& options = {}) {
  reduce_begin(unit, sources, options).wait();
}
inline void reduce(const Unit& unit, std::initializer_list<meron_source> sources,
                   const ReduceOptions& options = {}) {
  reduce_begin(unit, sources, options).wait();
}

// Ends an accumulation in which all micro-batches had boundary false: the same bits as if the last
// one had been the boundary. A rank without a gradient contributes zeros. Collective.
[[nodiscard]] inline Future reduce_finish_begin(const Unit& unit,
                                                const ReduceOptions& options = {}) {
  const meron_reduce_options raw = options.raw();
  return Future(adopt, detail::receive(meron_reduce_finish_begin, unit.handle(), &raw));
}

// The same, and waits until it has ended.
inline void reduce_finish(const Unit& unit, const ReduceOptions& options = {}) {
  reduce_finish_begin(unit, options).wait();
}

// Waits until the last reduction of each unit, and the last end of its accumulation, have ended;
// also those without a future. Blocks on peers, at most the deadline.
inline void wait_reductions(const UnitList& units) {
  detail::call(meron_reduce_wait, units.data(), units.size(), int64_t{MERON_TIMEOUT_DEFAULT});
}
// The same, up to `timeout`. Returns true if they have ended; if not, all continue.
[[nodiscard]] inline bool wait_reductions_for(const UnitList& units,
                                              std::chrono::nanoseconds duration) {
  return detail::call(meron_reduce_wait, units.data(), units.size(), detail::timeout(duration)) ==
         MERON_OK;
}

// The reduced gradient of the shard of `param` that this rank updates, f32, until the unit's next
// gradient, a step, or discard.
inline MutableView reduced(const Param& param) {
  return MutableView(detail::receive(meron_reduced_view, param.handle()));
}
// The same as a DLPack tensor (1.x) of one dimension, which the caller deletes by its deleter;
// until then a step, consume, discard and destroy of the unit throw MERON_E_STATE.
[[nodiscard]] inline DLManagedTensorVersioned* reduced_dlpack(const Param& param) {
  return detail::receive(meron_reduced_dlpack, param.handle());
}

// The exact global 2-norm of the units' reduced gradients, which are scaled to at most `max_norm`,
// for an optimizer of your own: the bits of a step with max_norm. 0 only measures. Collective over
// the units' group; blocks until every rank has called it, at most the deadline. Throws
// MERON_E_NONFINITE on all ranks, with param, element and rank, if a gradient is NaN or infinite:
// all gradients are as before then.
inline double clip_gradients(const UnitList& units, double max_norm) {
  return detail::receive(meron_gradient_clip, units.data(), units.size(), max_norm);
}

// Throws the reduced gradient of a unit away, with the codec's feedback; or the accumulation,
// before its boundary: then all ranks must do the same. After a step of your own optimizer, call
// Unit::consume instead.
inline void discard(const Unit& unit) {
  detail::call(meron_reduce_discard, unit.handle());
}

}  // namespace MERON_CPP_NAMESPACE
}  // namespace meron

#endif  // MERON_CPP_REDUCE_HPP

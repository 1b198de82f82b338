// SPDX-License-Identifier: Apache-2.0
// meron/cpp/gather.hpp: full tensors on demand.
#ifndef MERON_CPP_GATHER_HPP
#define MERON_CPP_GATHER_HPP

#include <chrono>
#include <initializer_list>

#include "meron/cpp/param.hpp"
#include "meron/cpp/values.hpp"
#include "meron/gather.h"

namespace meron {
inline namespace MERON_CPP_NAMESPACE {

// A destination for gather_into: memory for the full tensor. Throws MERON_E_ARGUMENT if its
// elements are not of the param's dtype.
template <class Memory, detail::Lasting<Memory> = 0>
meron_destination destination(const Param& param, Memory&& into) {
  const auto data = detail::memory_of(into);
  if (dtype_of<typename decltype(data)::value_type> != param.dtype()) {
    detail::raise(Error(MERON_E_ARGUMENT, "a destination has another type than its param", "dtype",
                        "Pass elements of the param's dtype."));
  }
  meron_destination made{};
  made.param = param.handle();
  made.data = data.data();
  made.bytes = data.size_bytes();
  return made;
}

template <class Memory, detail::Temporary<Memory> = 0>
meron_destination destination(const Param& param, Memory&& into) = delete;  // it would dangle

// The same in memory of the context's device. It is not checked: `data` must have space for the
// full tensor in the param's dtype.
inline meron_destination device_destination(const Param& param, void* data) {
  const meron_param_info info = param.info();
  meron_destination made{};
  made.param = param.handle();
  made.data = data;
  made.bytes = info.count * meron_dtype_size(info.dtype);
  return made;
}

// A destination for gather_into: memory for a flat of a unit, so for all its params. Throws
// MERON_E_ARGUMENT if its elements are not of the flat's dtype.
template <class Memory, detail::Lasting<Memory> = 0>
meron_flat_destination flat_destination(const Unit& unit, uint64_t flat, Memory&& into) {
  const auto data = detail::memory_of(into);
  const auto info = detail::receive_info<meron_flat_info>(meron_unit_flat, unit.handle(), flat);
  if (dtype_of<typename decltype(data)::value_type> != static_cast<DType>(info.dtype)) {
    detail::raise(Error(MERON_E_ARGUMENT, "a destination has another type than its flat", "dtype",
                        "Pass elements of the flat's dtype."));
  }
  meron_flat_destination made{};
  made.unit = unit.handle();
  made.flat = flat;
  made.data = data.data();
  made.bytes = data.size_bytes();
  return made;
}

template <class Memory, detail::Temporary<Memory> = 0>
meron_flat_destination flat_destination(const Unit& unit, uint64_t flat,
                                        Memory&& into) = delete;  // it would dangle

// The same in memory of the context's device. It is not checked: `data` must have space for the
// flat.
inline meron_flat_destination device_flat_destination(const Unit& unit, uint64_t flat, void* data) {
  meron_flat_destination made{};
  made.unit = unit.handle();
  made.flat = flat;
  made.data = data;
  made.bytes = detail::receive_info<meron_flat_info>(meron_unit_flat, unit.handle(), flat).bytes;
  return made;
}

// A gather of units. Its wait ends when the tensors are full. From then on the units are leased
// until its destruction, which makes its views invalid.
class Gather : public detail::Operation {
 public:
  using Operation::Operation;

  // Makes a stream of the context's device (a cudaStream_t; null: its default stream) wait until
  // the tensors are full there: later work on the stream sees them. Does not wait for the device;
  // for tensors on the host it is wait(). Blocks on peers, at most the deadline. Throws
  // MERON_E_ARGUMENT (no device, another device's stream), MERON_E_STATE (the stream is being
  // captured), MERON_E_NO_MEMORY (the device is full), MERON_E_DEVICE.
  void wait_stream(void* stream = nullptr) const {
    detail::call(meron_gather_wait_stream, handle(), stream, int64_t{MERON_TIMEOUT_DEFAULT});
  }
  [[nodiscard]] bool wait_stream_for(void* stream, std::chrono::nanoseconds duration) const {
    return detail::call(meron_gather_wait_stream, handle(), stream, detail::timeout(duration)) ==
           MERON_OK;
  }

  // The full tensor, read-only, valid as long as this gather. On a device its elements are in the
  // device's memory: read them in work of a stream that waits for them.
  View view(const Param& param) const& {
    return View(detail::receive(meron_gather_view, handle(), param.handle()));
  }
  View view(const Param& param) const&& = delete;  // the view would outlive the gather
  // The same as a DLPack tensor with a separate lease. The caller calls its deleter once, before or
  // after the context is closed, and must not read its data after that.
  [[nodiscard]] DLManagedTensorVersioned* dlpack(const Param& param) const {
    return detail::receive(meron_gather_dlpack, handle(), param.handle());
  }

  // Releases the leases if queued work of `stream` still uses the views: their memory on the device
  // is released when that work is done. Does not wait. Throws as wait_stream; then nothing is
  // released.
  void release_on_stream(void* stream = nullptr) {
    detail::call(meron_gather_release_on_stream, handle(), stream);
    static_cast<void>(detach());  // the call has released it
  }
};

// A gather of units into a private, writable copy that belongs to it, in the host's memory.
class GatherCopy : public detail::Operation {
 public:
  using Operation::Operation;

  // The full tensor, valid as long as this gather. Writes to it stay on this rank.
  MutableView view(const Param& param) const& {
    return MutableView(detail::receive(meron_gather_view, handle(), param.handle()));
  }
  MutableView view(const Param& param) const&& = delete;  // the view would outlive the gather
  // As Gather::dlpack, writable.
  [[nodiscard]] DLManagedTensorVersioned* dlpack(const Param& param) const {
    return detail::receive(meron_gather_dlpack, handle(), param.handle());
  }
};

// Begins a gather. Collective over the units' group; other ranks may gather a copy, or into their
// own memory.
[[nodiscard]] inline Gather gather_begin(const UnitList& units, Tier tier = Tier::device) {
  meron_gather_options options = MERON_GATHER_OPTIONS_INIT;
  options.tier = static_cast<meron_tier>(tier);
  return Gather(adopt, detail::receive(meron_gather_begin, units.data(), units.size(),
                                       tier == Tier::device ? nullptr : &options));
}
// Gathers, and waits until the tensors are full.
[[nodiscard]] inline Gather gather(const UnitList& units, Tier tier = Tier::device) {
  Gather begun = gather_begin(units, tier);
  begun.wait();
  return begun;
}

// Begins a gather of a copy. Collective as gather_begin.
[[nodiscard]] inline GatherCopy gather_copy_begin(const UnitList& units) {
  meron_gather_options options = MERON_GATHER_OPTIONS_INIT;
  options.mode = MERON_GATHER_COPY;
  return GatherCopy(adopt,
                    detail::receive(meron_gather_begin, units.data(), units.size(), &options));
}
// Gathers a copy, and waits for it.
[[nodiscard]] inline GatherCopy gather_copy(const UnitList& units) {
  GatherCopy begun = gather_copy_begin(units);
  begun.wait();
  return begun;
}

// Begins a gather into the caller's memory: one destination per requested param, alone or with its
// flat, whose padding receives unspecified values. The memory must stay valid until the gather has
// ended or is destroyed. Memory of the device is written after the queued work of `stream`; null:
// its default stream.
[[nodiscard]] inline Gather gather_into_begin(const UnitList& units,
                                              Span<const meron_destination> destinations,
                                              Span<const meron_flat_destination> flats,
                                              void* stream = nullptr) {
  meron_gather_options options = MERON_GATHER_OPTIONS_INIT;
  options.mode = MERON_GATHER_INTO;
  options.destinations = destinations.data();
  options.destination_count = destinations.size();
  options.stream = stream;
  options.flats = flats.data();
  options.flat_count = flats.size();
  return Gather(adopt, detail::receive(meron_gather_begin, units.data(), units.size(), &options));
}
// The same without flats.
[[nodiscard]] inline Gather gather_into_begin(const UnitList& units,
                                              Span<const meron_destination> destinations,
                                              void* stream = nullptr) {
  return gather_into_begin(units, destinations, Span<const meron_flat_destination>(), stream);
}
// The same, waits, and releases the leases.
inline void gather_into(const UnitList& units, Span<const meron_destination> destinations) {
  gather_into_begin(units, destinations).wait();
}
inline void gather_into(const UnitList& units,
                        std::initializer_list<meron_destination> destinations) {
  gather_into(units, Span<const meron_destination>(destinations.begin(), destinations.size()));
}
inline void gather_into(const UnitList& units,
                        std::initializer_list<meron_flat_destination> flats) {
  gather_into_begin(units, {}, Span<const meron_flat_destination>(flats.begin(), flats.size()))
      .wait();
}

}  // namespace MERON_CPP_NAMESPACE
}  // namespace meron

#endif  // MERON_CPP_GATHER_HPP

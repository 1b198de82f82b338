// SPDX-License-Identifier: Apache-2.0
// meron/cpp/gather.hpp: full tensors on demand.
#ifndef MERON_CPP_GATHER_HPP
#define MERON_CPP_GATHER_HPP

#include <chrono>
#include <initializer_list>

#include "meron/cpp/param.hpp"
#include "meron/gather.h"

namespace meron {
inline namespace v1 {

enum class GatherMode : meron_gather_mode {
  view = MERON_GATHER_VIEW,  // read-only, in place where the plan allows it
  copy = MERON_GATHER_COPY,  // a private, writable copy that belongs to the gather
};

// A destination for gather_into: memory for the whole tensor. Throws MERON_E_ARGUMENT when T is not
// of the param's dtype.
template <class Range>
meron_destination destination(const Param& param, Range&& into) {
  const Span<std::remove_pointer_t<decltype(into.data())>> data(into);
  if (dtype_of<typename decltype(data)::value_type> != param.dtype()) {
    throw Error(MERON_E_ARGUMENT, "a destination has another type than its param", "dtype",
                "Pass elements of the param's dtype.");
  }
  meron_destination made{};
  made.param = param.handle();
  made.data = data.data();
  made.bytes = data.size_bytes();
  return made;
}

// Units on their way to full, then leased until it dies. Views of it are invalid from then on.
class Gather : public Handle<meron_gather, meron_gather_release> {
 public:
  using Handle::Handle;

  // Waits until the tensors are full. Blocks on peers, at most the deadline.
  void wait() const { detail::call(meron_gather_wait, handle(), int64_t{MERON_TIMEOUT_DEFAULT}); }
  [[nodiscard]] bool wait_for(std::chrono::nanoseconds duration) const {
    return detail::call(meron_gather_wait, handle(), detail::timeout(duration)) == MERON_OK;
  }
  // Whether the tensors are full. Does not wait.
  [[nodiscard]] bool poll() const { return detail::call(meron_gather_poll, handle()) == MERON_OK; }

  // The whole tensor, until this gather dies.
  View view(const Param& param) const& {
    return View(detail::receive(meron_gather_view, handle(), param.handle()));
  }
  View view(const Param& param) const&& = delete;  // the view would outlive the gather
  // The same as a DLPack tensor with a lease of its own. The caller calls its deleter once, before
  // or after the context is closed; its data is not to be read after that.
  DLManagedTensorVersioned* dlpack(const Param& param) const {
    return detail::receive(meron_gather_dlpack, handle(), param.handle());
  }
};

// Begins a gather. Collective over the units' group; the mode may differ between ranks.
[[nodiscard]] inline Gather gather_begin(const UnitList& units,
                                         GatherMode mode = GatherMode::view) {
  meron_gather_options options = MERON_GATHER_OPTIONS_INIT;
  options.mode = static_cast<meron_gather_mode>(mode);
  return Gather(detail::receive(meron_gather_begin, units.data(), units.size(),
                                mode == GatherMode::view ? nullptr : &options));
}
// Gathers, and waits until the tensors are full.
[[nodiscard]] inline Gather gather(const UnitList& units, GatherMode mode = GatherMode::view) {
  Gather begun = gather_begin(units, mode);
  begun.wait();
  return begun;
}

// Begins a gather into the caller's memory: one destination per param that is wanted. The memory
// must stay valid until the gather is full or dead.
[[nodiscard]] inline Gather gather_into_begin(const UnitList& units,
                                              Span<const meron_destination> destinations) {
  meron_gather_options options = MERON_GATHER_OPTIONS_INIT;
  options.mode = MERON_GATHER_INTO;
  options.destinations = destinations.data();
  options.destination_count = destinations.size();
  return Gather(detail::receive(meron_gather_begin, units.data(), units.size(), &options));
}
// The same, waits, and gives the leases back.
inline void gather_into(const UnitList& units, Span<const meron_destination> destinations) {
  gather_into_begin(units, destinations).wait();
}
inline void gather_into(const UnitList& units,
                        std::initializer_list<meron_destination> destinations) {
  gather_into(units, Span<const meron_destination>(destinations.begin(), destinations.size()));
}

}  // namespace v1
}  // namespace meron

#endif  // MERON_CPP_GATHER_HPP

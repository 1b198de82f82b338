// SPDX-License-Identifier: Apache-2.0
// meron/cpp/param.hpp: params (named tensors), units (params that are gathered together), and
// updates (writes of a rank to its shards).
#ifndef MERON_CPP_PARAM_HPP
#define MERON_CPP_PARAM_HPP

#include <chrono>
#include <string_view>

#include "meron/cpp/dtype.hpp"
#include "meron/cpp/group.hpp"
#include "meron/cpp/methods.hpp"
#include "meron/param.h"

namespace meron {
inline namespace v1 {

// Options of a param, besides its name and shape.
struct ParamOptions {
  DType dtype = DType::f32;
  bool frozen = false;           // has no gradient and no optimizer state
  const Group* group = nullptr;  // the ranks that share it; null: the world
};

// A named tensor that the ranks of a group share. Created by Context::param.
class Param : public Handle<meron_param, meron_param_release>, public detail::ParamMethods<Param> {
 public:
  using Handle::Handle;

  // Shape, dtype, element count, and the range that this rank updates.
  meron_param_info info() const {
    return detail::receive_info<meron_param_info>(meron_param_get_info, handle());
  }
  DType dtype() const { return static_cast<DType>(info().dtype); }
  // Elements of the full tensor.
  uint64_t size() const { return info().count; }
  // Borrowed from the param.
  std::string_view name() const { return detail::receive(meron_param_name, handle()); }
};

using ParamList = ListOf<Param>;

// Params that are gathered and reduced together, such as a layer's. Created by Context::unit.
class Unit : public Handle<meron_unit, meron_unit_release>, public detail::UnitMethods<Unit> {
 public:
  using Handle::Handle;

  // State, version, leases, a flag for a reduced gradient that waits for a step, and the codecs of
  // values and gradients between replicas, with their errors.
  meron_unit_info info() const {
    return detail::receive_info<meron_unit_info>(meron_unit_get_info, handle());
  }

  // Its params, in the order in which they were given, with handles of their own.
  std::vector<Param> params() const {
    std::vector<Param> found;
    const uint64_t count = info().params;
    for (uint64_t i = 0; i < count; ++i) {
      found.emplace_back(detail::receive(meron_unit_param, handle(), i));
    }
    return found;
  }

  // Its flats, in the order of their first params. A param is in the flat of its info().flat, from
  // element info().flat_offset on.
  std::vector<meron_flat_info> flats() const {
    std::vector<meron_flat_info> found(info().flats);
    for (uint64_t i = 0; i < found.size(); ++i) {
      found[i] = detail::receive_info<meron_flat_info>(meron_unit_flat, handle(), i);
    }
    return found;
  }

  // Releases the memory and the names of the unit and its params, whose handles become stale.
  // Collective over their group; no rank creates units or groups meanwhile. Blocks until every rank
  // has called it and no rank uses the unit, at most the deadline. Throws MERON_E_STATE if the unit
  // is in use on this rank, or belongs to a schedule or an optimizer.
  void destroy() {
    detail::call(meron_unit_destroy, handle());
    static_cast<void>(detach());  // the call has released it
  }
};

using UnitList = ListOf<Unit>;

// Units opened for writing; created by update. End it by publish. If an exception ends its scope
// before, the destructor cancels the update: if a call has waited for it and none has written, it
// is published unchanged; otherwise the group breaks with MERON_E_ABORTED on every rank, and the
// error names this rank. The caller keeps its own exception.
class Update : public Handle<meron_future, meron_future_release> {
 public:
  using Handle::Handle;

  // Waits until every rank has released the current version; then this rank's shards may be
  // written. Blocks on peers, at most the deadline.
  void wait() const { detail::call(meron_future_wait, handle(), int64_t{MERON_TIMEOUT_DEFAULT}); }
  [[nodiscard]] bool wait_for(std::chrono::nanoseconds duration) const {
    return detail::call(meron_future_wait, handle(), detail::timeout(duration)) == MERON_OK;
  }

  // The shard of `param` that this rank updates, writable, until publish.
  View view(const Param& param) const {
    return View(detail::receive(meron_update_view, handle(), param.handle()));
  }
  // Writes this rank's shard from the full tensor. Every rank passes equal values. Converts between
  // dtypes.
  template <class Range>
  void write(const Param& param, const Range& whole) const {
    const Span<const std::remove_pointer_t<decltype(whole.data())>> data(whole);
    detail::call(meron_update_write, handle(), param.handle(),
                 static_cast<const void*>(data.data()), uint64_t{data.size()},
                 static_cast<meron_dtype>(dtype_of<typename decltype(data)::value_type>));
  }

  // Publishes the written values as the next version and ends the update.
  void publish() {
    detail::call(meron_update_publish, handle());
    static_cast<void>(detach());  // the call has released it
  }
};

// Requests that every rank release the units' current version. Collective over their group. Throws
// MERON_E_STATE if a unit is gathered on this rank.
[[nodiscard]] inline Update update_begin(const UnitList& units) {
  return Update(detail::receive(meron_update_begin, units.data(), units.size()));
}
// The same, and waits.
[[nodiscard]] inline Update update(const UnitList& units) {
  Update begun = update_begin(units);
  begun.wait();
  return begun;
}

}  // namespace v1
}  // namespace meron

#endif  // MERON_CPP_PARAM_HPP

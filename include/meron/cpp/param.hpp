// SPDX-License-Identifier: Apache-2.0
// meron/cpp/param.hpp: params (named tensors), units (params that are gathered together), and
// updates (writes of a rank to its shards).
#ifndef MERON_CPP_PARAM_HPP
#define MERON_CPP_PARAM_HPP

#include <chrono>
#include <string_view>
#include <vector>

#include "meron/cpp/dtype.hpp"
#include "meron/cpp/group.hpp"
#include "meron/cpp/methods.hpp"
#include "meron/param.h"

namespace meron {
inline namespace MERON_CPP_NAMESPACE {

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
  // Valid as long as the param.
  std::string_view name() const& { return detail::receive(meron_param_name, handle()); }
  std::string_view name() const&& = delete;  // it would outlive the param
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

  // Its params, in the order in which they were given. They have handles of their own, so none is
  // == the param that the unit was created of: compare names.
  std::vector<Param> params() const {
    const uint64_t count = info().params;
    return detail::with_memory([&] {
      std::vector<Param> found;
      for (uint64_t i = 0; i < count; ++i) {
        found.emplace_back(adopt, detail::receive(meron_unit_param, handle(), i));
      }
      return found;
    });
  }

  // Its flats, in the order of their first params. A param is in the flat of its info().flat, from
  // element info().flat_offset on.
  std::vector<meron_flat_info> flats() const {
    const uint64_t count = info().flats;
    return detail::with_memory([&] {
      std::vector<meron_flat_info> found(count);
      for (uint64_t i = 0; i < count; ++i) {
        found[i] = detail::receive_info<meron_flat_info>(meron_unit_flat, handle(), i);
      }
      return found;
    });
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
// error names this rank. The caller keeps its own exception. A temporary update has neither view
// nor write, because it would end unpublished.
//
// Its wait ends when every rank has released the current version: then this rank's shards may be
// written.
class Update : public detail::Operation {
 public:
  using Operation::Operation;

  // The shard of `param` that this rank updates, until publish.
  MutableView view(const Param& param) const& {
    return MutableView(detail::receive(meron_update_view, handle(), param.handle()));
  }
  MutableView view(const Param& param) const&& = delete;
  // Writes this rank's shard from the full tensor: a range, or one element. Every rank passes equal
  // values. Converts between dtypes.
  template <class Memory, detail::Readable<Memory> = 0>
  void write(const Param& param, const Memory& whole) const& {
    const auto data = detail::memory_of(whole);
    detail::call(meron_update_write, handle(), param.handle(),
                 static_cast<const void*>(data.data()), uint64_t{data.size()},
                 static_cast<meron_dtype>(dtype_of<typename decltype(data)::value_type>));
  }
  template <class Memory, detail::Readable<Memory> = 0>
  void write(const Param& param, const Memory& whole) const&& = delete;

  // Publishes the written values as the next version and ends the update.
  void publish() {
    detail::call(meron_update_publish, handle());
    static_cast<void>(detach());  // the call has released it
  }
};

// Requests that every rank release the units' current version. Collective over their group. Throws
// MERON_E_STATE if a unit is gathered on this rank.
[[nodiscard]] inline Update update_begin(const UnitList& units) {
  return Update(adopt, detail::receive(meron_update_begin, units.data(), units.size()));
}
// The same, and waits.
[[nodiscard]] inline Update update(const UnitList& units) {
  Update begun = update_begin(units);
  begun.wait();
  return begun;
}

}  // namespace MERON_CPP_NAMESPACE
}  // namespace meron

template <>
struct std::hash<meron::Param> : meron::detail::HandleHash {};
template <>
struct std::hash<meron::Unit> : meron::detail::HandleHash {};

#endif  // MERON_CPP_PARAM_HPP

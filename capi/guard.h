// SPDX-License-Identifier: Apache-2.0
// What the functions of the engine have in common, beside what all functions of the C ABI have.
#pragma once

#include <memory>
#include <vector>

#include "capi/call.h"     // IWYU pragma: export
#include "capi/objects.h"  // IWYU pragma: export
#include "engine/engine.h"
#include "meron/meron.h"

namespace meron::capi {

struct ContextHolder final : Object {
  static constexpr Kind kKind = Kind::context;
  explicit ContextHolder(std::shared_ptr<Context> context_in)
      : Object(Kind::context, std::move(context_in)) {}
};
using PlanHolder = Holder<Kind::plan, Plan>;
using GroupHolder = Holder<Kind::group, Channel*>;  // the context owns the channel
using ParamHolder = Holder<Kind::param, std::shared_ptr<Param>>;
using UnitHolder = Holder<Kind::unit, std::shared_ptr<Unit>>;
using GatherHolder = Holder<Kind::gather, std::shared_ptr<GatherOperation>>;
using FutureHolder = Holder<Kind::future, std::shared_ptr<Operation>>;  // null: ended at once
using UpdateHolder = Holder<Kind::update, std::shared_ptr<UpdateOperation>>;
using ScheduleHolder = Holder<Kind::schedule, std::shared_ptr<UnitSchedule>>;
using CheckpointHolder = Holder<Kind::checkpoint, std::shared_ptr<OpenedCheckpoint>>;
using OptimizerHolder = Holder<Kind::optimizer, std::shared_ptr<Optimizer>>;

// The same for an object of a context; notes the rank.
template <class H, class Handle>
Result<std::shared_ptr<H>> get(Handle handle, int& rank) {
  auto holder = get<H>(handle);
  if (holder.ok()) rank = (*holder)->context->transport().rank();
  return holder;
}

inline Result<DType> to_dtype(meron_dtype dtype) {
  if (dtype == MERON_F64 || dtype == MERON_I64) {
    return Error(MERON_E_ARGUMENT,
                 dtype == MERON_F64 ? "dtype is f64, which only an all-reduce takes"
                                    : "dtype is i64, which only an all-reduce takes",
                 "convert the values to f32, bf16 or f16")
        .on("dtype");
  }
  if (!valid_dtype(dtype)) return unknown_enum("dtype", dtype);
  return static_cast<DType>(dtype);
}

// The objects of an array of unit handles, all of one context.
struct Units {
  std::shared_ptr<Context> context;
  std::vector<std::shared_ptr<Unit>> units;
};
Result<Units> get_units(const meron_unit* units, size_t count);
// MERON_E_ARGUMENT if the unit, which has `count` params or flats, has none of that index.
Status check_index(const Unit& unit, const char* what, size_t count, uint64_t index);

}  // namespace meron::capi

// SPDX-License-Identifier: Apache-2.0
#include "meron/reduce.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "capi/dlpack.h"
#include "capi/guard.h"
#include "capi/view.h"

using namespace meron;        // NOLINT: this file is the C side of that namespace
using namespace meron::capi;  // NOLINT

namespace {

Status check_trainable(const Param& param) {
  if (param.unit == nullptr) {
    return Error(MERON_E_STATE, fmt::format("param '{}' is in no unit", param.desc.name),
                 "make a unit of it first")
        .on(param.desc.name);
  }
  if (!param.desc.trainable) {
    return Error(MERON_E_STATE, fmt::format("param '{}' is frozen", param.desc.name),
                 "register it without `frozen` to train it")
        .on(param.desc.name);
  }
  return Ok{};
}

// Of a param. Another thread may destroy it from here on: it stays an object that refuses.
Result<std::shared_ptr<Unit>> trainable_unit(Context& context, const Param& param) {
  const auto held = context.lock();
  MERON_TRY(check_trainable(param));
  return param.unit->shared_from_this();
}

// A source, checked before anything is written.
struct Source {
  size_t index;
  const meron_source* given;
  bool on_device;
};

Result<std::vector<Source>> check_sources(const Unit& unit, const meron_source* sources,
                                          size_t count) {
  const DeviceSide* const side = unit.rank().device.get();
  std::vector<Source> checked;
  std::vector<bool> seen(unit.params().size(), false);
  for (size_t i = 0; i < count; ++i) {
    const meron_source& source = sources[i];
    MERON_ASSIGN(const auto holder, get<ParamHolder>(source.param));
    const Param& param = *holder->value;
    if (param.unit != &unit) {
      return Error(MERON_E_ARGUMENT,
                   fmt::format("param '{}' is not in unit '{}'", param.desc.name, unit.name()),
                   "pass gradients of one unit per call")
          .on(param.desc.name);
    }
    MERON_TRY(check_trainable(param));
    const size_t index = index_in_unit(unit, param);
    if (seen[index]) {
      return Error(MERON_E_DUPLICATE, fmt::format("param '{}' has two gradients", param.desc.name),
                   "add them up first")
          .on(param.desc.name);
    }
    seen[index] = true;
    MERON_TRY(to_dtype(source.dtype));
    if (source.reserved_0 != 0) return unknown_enum("source.reserved_0", source.reserved_0);
    if (source.count != param.count) {
      return Error(MERON_E_ARGUMENT,
                   fmt::format("param '{}' has {} elements, its gradient has {}", param.desc.name,
                               param.count, source.count),
                   "pass the whole gradient")
          .on(param.desc.name);
    }
    if (source.count > 0) MERON_TRY(need(source.data, "source.data"));
    bool on_device = false;
    if (side != nullptr && source.count > 0) {
      MERON_ASSIGN(on_device,
                   side->device().holds(source.data, "the gradient of '" + param.desc.name + "'"));
    }
    checked.push_back({index, &source, on_device});
  }
  return checked;
}

Result<ReduceOptions> to_options(const meron_reduce_options* options) {
  const meron_reduce_options defaults = MERON_REDUCE_OPTIONS_INIT;
  MERON_ASSIGN(const meron_reduce_options given, read_options(options, defaults, "options"));
  if (given.op == MERON_REDUCE_OP_MAX || given.op == MERON_REDUCE_OP_MIN) {
    return Error(MERON_E_ARGUMENT,
                 given.op == MERON_REDUCE_OP_MAX ? "options.op is max, of gradients"
                                                 : "options.op is min, of gradients",
                 "give sum or mean; an all-reduce of a plain array has max and min")
        .on("options.op");
  }
  if (given.op != MERON_REDUCE_OP_SUM && given.op != MERON_REDUCE_OP_MEAN) {
    return unknown_enum("options.op", given.op);
  }
  if (given.boundary > 1) return unknown_enum("options.boundary", given.boundary);
  if (given.reserved_0 != 0) return unknown_enum("options.reserved_0", given.reserved_0);
  if (!(given.divisor > 0.0) || !std::isfinite(given.divisor)) {
    return Error(MERON_E_ARGUMENT, fmt::format("options.divisor is {}", given.divisor),
                 given.divisor == 0.0 ? "start from MERON_REDUCE_OPTIONS_INIT, whose divisor is 1"
                                      : "give a finite number above 0");
  }
  return ReduceOptions{given.op == MERON_REDUCE_OP_MEAN, given.boundary == 1, given.divisor};
}

// A caller of an older version has none.
void* given_stream(const meron_reduce_options& options) {
  constexpr size_t kEnd = offsetof(meron_reduce_options, stream) + sizeof(options.stream);
  return options.struct_size >= kEnd ? options.stream : nullptr;
}

// Begins a reduction and issues its future. If `out` is null the operation completes without one.
template <class Begin>
Status begin_for(meron_future* out, const UnitHolder& holder, Begin begin) {
  MERON_ASSIGN(auto handle, NewHandle<FutureHolder>::make(holder.context));
  MERON_ASSIGN(auto operation, begin());
  if (out != nullptr) handle.issue(out, std::move(operation));
  return Ok{};
}

}  // namespace

extern "C" {

meron_status meron_gradient_view(meron_view* out, meron_param param, uint64_t flags,
                                 meron_error** err) {
  return guard("gradient_view", err, [&](int& rank) -> Status {
    MERON_TRY(need(out, "out"));
    MERON_ASSIGN(const auto holder, get<ParamHolder>(param, rank));
    if ((flags & ~uint64_t{MERON_GRADIENT_OVERWRITE}) != 0) {
      return unknown_enum("flags", static_cast<int64_t>(flags));
    }
    const Param& value = *holder->value;
    MERON_ASSIGN(const auto unit, trainable_unit(*holder->context, value));
    MERON_ASSIGN(std::byte* const place, holder->context->gradient_place(
                                             unit, value, (flags & MERON_GRADIENT_OVERWRITE) != 0));
    *out = make_view(place, {0, value.count}, unit->gradient().type_of(unit->flat_of(value)), true);
    return Ok{};
  });
}

meron_status meron_reduce_options_init(meron_reduce_options* options, size_t struct_size,
                                       meron_error** err) {
  return guard("reduce_options_init", err, [&]() -> Status {
    const meron_reduce_options initial = MERON_REDUCE_OPTIONS_INIT;
    return init_options(options, struct_size, initial);
  });
}

meron_status meron_reduce_begin(meron_future* out, meron_unit unit, const meron_source* sources,
                                size_t count, const meron_reduce_options* options,
                                meron_error** err) {
  return guard("reduce_begin", err, [&](int& rank) -> Status {
    MERON_ASSIGN(const auto holder, get<UnitHolder>(unit, rank));
    MERON_ASSIGN(const ReduceOptions given, to_options(options));
    if (sources == nullptr && count > 0) MERON_TRY(need(sources, "sources"));
    const std::shared_ptr<Unit>& target = holder->value;
    const auto check = [&] {
      const auto held = holder->context->lock();
      return check_sources(*target, sources, count);
    };
    MERON_ASSIGN(const std::vector<Source> checked, check());
    void* const stream = options == nullptr ? nullptr : given_stream(*options);
    if (std::any_of(checked.begin(), checked.end(),
                    [](const Source& source) { return source.on_device; })) {
      MERON_TRY(holder->context->rank().device->device().check_stream(stream));
    }
    std::vector<GivenGradient> gradients;
    gradients.reserve(checked.size());
    for (const Source& source : checked) {
      gradients.push_back({source.index, static_cast<const std::byte*>(source.given->data),
                           static_cast<DType>(source.given->dtype), source.on_device});
    }
    return begin_for(out, *holder,
                     [&] { return holder->context->reduce(target, gradients, stream, given); });
  });
}

meron_status meron_reduce_finish_begin(meron_future* out, meron_unit unit,
                                       const meron_reduce_options* options, meron_error** err) {
  return guard("reduce_finish_begin", err, [&](int& rank) -> Status {
    MERON_ASSIGN(const auto holder, get<UnitHolder>(unit, rank));
    MERON_ASSIGN(const ReduceOptions given, to_options(options));
    if (!given.boundary) {
      return Error(MERON_E_ARGUMENT, "the options have no boundary, and an accumulation is to end",
                   "set the boundary, or reduce another micro-batch instead");
    }
    return begin_for(out, *holder,
                     [&] { return holder->context->finish_reduction(holder->value, given); });
  });
}

meron_status meron_reduce_wait(const meron_unit* units, size_t count, int64_t timeout_ns,
                               meron_error** err) {
  return guard("reduce_wait", err, [&](int& rank) -> Result<meron_status> {
    MERON_TRY(check_timeout(timeout_ns));
    MERON_ASSIGN(const Units found, get_units(units, count));
    rank = found.context->transport().rank();
    return progress_status(found.context->wait_reductions(found.units, timeout_ns));
  });
}

meron_status meron_gradient_clip(double* out, const meron_unit* units, size_t count,
                                 double max_norm, meron_error** err) {
  return guard("gradient_clip", err, [&](int& rank) -> Status {
    MERON_TRY(need(out, "out"));
    if (!(max_norm >= 0.0) || !std::isfinite(max_norm)) {
      return Error(MERON_E_ARGUMENT, fmt::format("max_norm is {}", max_norm),
                   "give a finite number, 0 to measure only")
          .on("max_norm");
    }
    MERON_ASSIGN(Units found, get_units(units, count));
    rank = found.context->transport().rank();
    MERON_ASSIGN(*out, found.context->clip(std::move(found.units), max_norm));
    return Ok{};
  });
}

meron_status meron_reduced_view(meron_view* out, meron_param param, meron_error** err) {
  return guard("reduced_view", err, [&](int& rank) -> Status {
    MERON_TRY(need(out, "out"));
    MERON_ASSIGN(const auto holder, get<ParamHolder>(param, rank));
    const Param& value = *holder->value;
    MERON_ASSIGN([[maybe_unused]] const Turn turn, holder->context->turn());
    auto held = holder->context->lock();
    MERON_TRY(check_trainable(value));
    MERON_ASSIGN(const auto reduced, holder->context->reduced_gradient(held, value));
    *out = make_view(reduced.data, reduced.part, DType::f32, true);
    return Ok{};
  });
}

meron_status meron_reduced_dlpack(struct DLManagedTensorVersioned** out, meron_param param,
                                  meron_error** err) {
  return guard("reduced_dlpack", err, [&](int& rank) -> Status {
    MERON_TRY(need(out, "out"));
    MERON_ASSIGN(const auto holder, get<ParamHolder>(param, rank));
    MERON_ASSIGN([[maybe_unused]] const Turn turn, holder->context->turn());
    auto held = holder->context->lock();
    MERON_TRY(check_trainable(*holder->value));
    MERON_ASSIGN(const auto reduced, holder->context->reduced_gradient(held, *holder->value));
    if (holder->value->unit->stepping) {
      return Error(MERON_E_STATE,
                   fmt::format("the gradient of unit '{}' is in use by a step",
                               holder->value->unit->name()),
                   "wait for the step")
          .on(holder->value->unit->name());
    }
    MERON_ASSIGN(*out, export_reduced(holder->context, holder->value, reduced));
    return Ok{};
  });
}

meron_status meron_reduce_discard(meron_unit unit, meron_error** err) {
  return guard("reduce_discard", err, [&](int& rank) -> Status {
    MERON_ASSIGN(const auto holder, get<UnitHolder>(unit, rank));
    MERON_ASSIGN([[maybe_unused]] const Turn turn, holder->context->turn());
    auto held = holder->context->lock();
    return holder->context->end_gradient(held, *holder->value, false);
  });
}

meron_status meron_reduce_consume(meron_unit unit, meron_error** err) {
  return guard("reduce_consume", err, [&](int& rank) -> Status {
    MERON_ASSIGN(const auto holder, get<UnitHolder>(unit, rank));
    MERON_ASSIGN([[maybe_unused]] const Turn turn, holder->context->turn());
    auto held = holder->context->lock();
    return holder->context->end_gradient(held, *holder->value, true);
  });
}

meron_status meron_reduce_scale_feedback(meron_unit unit, double factor, meron_error** err) {
  return guard("reduce_scale_feedback", err, [&](int& rank) -> Status {
    MERON_ASSIGN(const auto holder, get<UnitHolder>(unit, rank));
    MERON_ASSIGN([[maybe_unused]] const Turn turn, holder->context->turn());
    auto held = holder->context->lock();
    return holder->context->scale_feedback(held, *holder->value, factor);
  });
}

}  // extern "C"

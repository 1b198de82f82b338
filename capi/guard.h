// SPDX-License-Identifier: Apache-2.0
// What every function of the C ABI is wrapped in: no exception crosses, every failure becomes a
// status and, where asked for, an error object; handles become objects.
#pragma once

#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "meron/meron.h"

struct meron_error {
  meron::ErrorInfo info;
  std::string message;
};

namespace meron::capi {

// Ends a call that failed.
meron_status report(const char* operation, meron_error** err, ErrorInfo info) noexcept;

// Runs `body`, which returns a Status or a Result<meron_status>. It may take an `int& rank` and set
// it as soon as the rank is known, so that errors name it.
template <class Body>
meron_status guard(const char* operation, meron_error** err, Body&& body) noexcept {
  int rank = MERON_RANK_NONE;
  try {
    auto result = [&] {
      if constexpr (std::is_invocable_v<Body, int&>) {
        return body(rank);
      } else {
        return body();
      }
    }();
    if (!result.ok()) {
      ErrorInfo& info = result.error().info();
      if (info.rank == MERON_RANK_NONE) info.rank = rank;
      return report(operation, err, std::move(info));
    }
    if constexpr (std::is_same_v<std::decay_t<decltype(result)>, Result<meron_status>>) {
      return *result;
    } else {
      return MERON_OK;
    }
  } catch (const std::bad_alloc&) {
    ErrorInfo info;
    info.code = MERON_E_NO_MEMORY;
    return report(operation, err, std::move(info));
  } catch (const std::exception& exception) {
    ErrorInfo info;
    try {
      info.what = exception.what();
      info.advice = "please report this defect";
    } catch (...) {
      return report(operation, err, std::move(info));
    }
    return report(operation, err, std::move(info));
  } catch (...) {
    return report(operation, err, ErrorInfo{});
  }
}

// An object in the handle table.
template <Kind K, class T>
struct Holder final : Object {
  static constexpr Kind kKind = K;
  Holder(std::shared_ptr<Context> context_in, T value_in)
      : Object(K, std::move(context_in)), value(std::move(value_in)) {}
  T value;
};

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

inline Status check_fork() {
  if (!is_forked_child()) return Ok{};
  return Error(
      MERON_E_FORKED, "this process is a fork of one that used Meron",
      "use Meron in one of the two only: fork before the first call, or start the child by "
      "exec or spawn");
}

template <class H, class Handle>
Result<std::shared_ptr<H>> get(Handle handle) {
  if constexpr (H::kKind != Kind::plan) MERON_TRY(check_fork());
  auto object = HandleTable::instance().find(handle.id, H::kKind);
  if (!object.ok()) return std::move(object).error();
  return std::static_pointer_cast<H>(std::move(*object));
}

// The same for an object of a context; notes the rank.
template <class H, class Handle>
Result<std::shared_ptr<H>> get(Handle handle, int& rank) {
  auto holder = get<H>(handle);
  if (holder.ok()) rank = (*holder)->context->transport().rank();
  return holder;
}

// The object, and the handle is stale from now on.
template <class H, class Handle>
Result<std::shared_ptr<H>> take(Handle handle) {
  if constexpr (H::kKind != Kind::plan) MERON_TRY(check_fork());
  auto object = HandleTable::instance().erase(handle.id, H::kKind);
  if (!object.ok()) return std::move(object).error();
  return std::static_pointer_cast<H>(std::move(*object));
}

template <class H, class Handle, class... Args>
Status put(Handle* out, Args&&... args) {
  MERON_ASSIGN(out->id,
               HandleTable::instance().insert(std::make_shared<H>(std::forward<Args>(args)...)));
  return Ok{};
}

// MERON_OK or MERON_IN_PROGRESS.
inline Result<meron_status> progress_status(Result<bool> ended) {
  if (!ended.ok()) return std::move(ended).error();
  return *ended ? MERON_OK : MERON_IN_PROGRESS;
}

inline Status need(const void* pointer, const char* name) {
  if (pointer != nullptr) return Ok{};
  return Error(MERON_E_ARGUMENT, std::string(name) + " is NULL",
               std::string("pass a valid pointer as ") + name)
      .on(name);
}

inline Error unknown_enum(const char* name, int64_t value) {
  return Error(MERON_E_ARGUMENT,
               std::string(name) + " has the unknown value " + std::to_string(value),
               "use a constant of the header")
      .on(name);
}

inline Result<DType> to_dtype(meron_dtype dtype) {
  if (!valid_dtype(dtype)) return unknown_enum("dtype", dtype);
  return static_cast<DType>(dtype);
}

// The caller's options over the defaults: what an older caller does not have keeps its default;
// what a newer caller sets and this library does not know is refused.
template <class Options>
Result<Options> read_options(const Options* given, const Options& defaults, const char* name) {
  Options options = defaults;
  if (given == nullptr) return options;
  uint32_t size = 0;
  std::memcpy(&size, given, sizeof(size));
  if (size < sizeof(uint32_t) || size > 4096) {
    return Error(MERON_E_ARGUMENT,
                 std::string(name) + ".struct_size is " + std::to_string(size) + ", expected " +
                     std::to_string(sizeof(Options)),
                 "start from the INIT macro or the init function")
        .on(name);
  }
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (size_t i = sizeof(Options); i < size; ++i) {
    if (bytes[i] == 0) continue;
    return Error(MERON_E_UNSUPPORTED,
                 std::string(name) + " sets a field that this version does not know",
                 "load a newer library, or leave the field at 0")
        .on(name);
  }
  std::memcpy(&options, given, size < sizeof(Options) ? size : sizeof(Options));
  options.struct_size = static_cast<uint32_t>(sizeof(Options));
  return options;
}

// The initial value of an options struct, as far as the caller's reaches.
template <class Options>
Status init_options(Options* out, size_t struct_size, const Options& initial) {
  MERON_TRY(need(out, "the struct"));
  if (struct_size < sizeof(uint32_t) || struct_size > sizeof(Options)) {
    return Error(MERON_E_ARGUMENT,
                 "struct_size is " + std::to_string(struct_size) + ", this library knows " +
                     std::to_string(sizeof(Options)),
                 "pass sizeof the struct, and load a library that is as new as the headers");
  }
  std::memcpy(static_cast<void*>(out), &initial, struct_size);
  out->struct_size = static_cast<uint32_t>(struct_size);
  return Ok{};
}

// Fills the caller's struct as far as it reaches; what it has beyond this library's is zeroed.
template <class Info>
Status write_info(Info* out, Info info, const char* name) {
  const uint32_t size = out->struct_size;
  if (size < sizeof(uint32_t) || size > 4096) {
    return Error(MERON_E_ARGUMENT,
                 std::string(name) + ".struct_size is " + std::to_string(size) + ", expected " +
                     std::to_string(sizeof(Info)),
                 "set struct_size to sizeof the struct before the call")
        .on(name);
  }
  info.struct_size = size;
  std::memcpy(static_cast<void*>(out), &info, size < sizeof(Info) ? size : sizeof(Info));
  if (size > sizeof(Info)) {
    std::memset(reinterpret_cast<unsigned char*>(out) + sizeof(Info), 0, size - sizeof(Info));
  }
  return Ok{};
}

// A copy for the caller, freed by meron_string_free.
Status hand_out(char** out, const std::string& text);

// The objects of an array of unit handles, all of one context.
struct Units {
  std::shared_ptr<Context> context;
  std::vector<std::shared_ptr<Unit>> units;
};
Result<Units> get_units(const meron_unit* units, size_t count);

}  // namespace meron::capi

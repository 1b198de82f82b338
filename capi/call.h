// SPDX-License-Identifier: Apache-2.0
// What every function of the C ABI is wrapped in: no exception crosses, every failure becomes a
// status and, where asked for, an error object; a callback only looks and releases; the engine
// computes in its own floating-point mode; structs of the caller's may be of another version.
#pragma once

#include <algorithm>
#include <cstring>
#include <new>
#include <string>
#include <type_traits>
#include <utility>

#include "base/result.h"
#include "capi/callbacks.h"
#include "capi/field_ends.h"
#include "meron/base.h"
#include "os/float_mode.h"

struct meron_error {
  meron::ErrorInfo info;
  std::string message;
};

namespace meron::capi {

inline constexpr uint32_t kMaxStruct = 4096;  // bytes

// Ends a call that failed.
meron_status report(const char* operation, meron_error** err, ErrorInfo info) noexcept;

// Runs `body`, which returns a Status or a Result<meron_status>. It may take an `int& rank` and set
// it as soon as the rank is known, so that errors name it.
template <class Body>
meron_status guard(const char* operation, meron_error** err, Body&& body) noexcept {
  const FloatModeScope mode;
  int rank = MERON_RANK_NONE;
  try {
    if (CallbackScope::here() != Callback::none) {
      Status allowed = check_in_callback(operation);
      if (!allowed.ok()) return report(operation, err, std::move(allowed.error().info()));
    }
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

Error missing(const char* name);
inline Status need(const void* pointer, const char* name) {
  if (pointer != nullptr) return Ok{};
  return missing(name);
}

inline Error unknown_enum(const char* name, int64_t value) {
  return Error(MERON_E_ARGUMENT,
               std::string(name) + " has the unknown value " + std::to_string(value),
               "use a constant of the header")
      .on(name);
}

Error wrong_timeout(int64_t timeout_ns);
// Every negative timeout but the default is a mistake.
inline Status check_timeout(int64_t timeout_ns) {
  if (timeout_ns >= MERON_TIMEOUT_DEFAULT) return Ok{};
  return wrong_timeout(timeout_ns);
}

// True if a caller of some version can have a struct of that size: it ends where a field does, or
// beyond all that this version knows.
template <class Struct>
bool is_size_of(uint32_t size) {
  constexpr const auto& kEnds = FieldEnds<Struct>::kEnds;
  return (size > sizeof(Struct) && size <= kMaxStruct) ||
         std::find(kEnds.begin(), kEnds.end(), size) != kEnds.end();
}

template <class Struct>
Error size_error(uint64_t size, const char* name, const char* advice) {
  return Error(MERON_E_ARGUMENT,
               std::string(name) + ".struct_size is " + std::to_string(size) + ", expected " +
                   std::to_string(sizeof(Struct)),
               advice)
      .on(name);
}

// Merges the caller's options over the defaults. A field that an older caller lacks keeps its
// default. A field that a newer caller sets and this library does not have is an error.
template <class Options>
Result<Options> read_options(const Options* given, const Options& defaults, const char* name) {
  Options options = defaults;
  if (given == nullptr) return options;
  uint32_t size = 0;
  std::memcpy(&size, given, sizeof(size));
  if (!is_size_of<Options>(size)) {
    return size_error<Options>(size, name, "start from the INIT macro or the init function");
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
  if (struct_size > sizeof(Options) || !is_size_of<Options>(static_cast<uint32_t>(struct_size))) {
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
  if (!is_size_of<Info>(size)) {
    return size_error<Info>(size, name, "set struct_size to sizeof the struct before the call");
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

}  // namespace meron::capi

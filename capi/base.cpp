// SPDX-License-Identifier: Apache-2.0
#include "meron/base.h"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>

#include "capi/guard.h"

namespace meron::capi {
namespace {

// "gather failed on rank 1: rank 0 has died. Restart the job."
std::string compose(const ErrorInfo& info) {
  std::string text = info.operation.empty() ? "call" : info.operation;
  text += " failed";
  if (info.rank != MERON_RANK_NONE) text += fmt::format(" on rank {}", info.rank);
  text += ": ";
  if (!info.subject.empty() && info.what.find(info.subject) == std::string::npos) {
    text += info.subject + ": ";
  }
  text += info.what.empty() ? meron_status_name(info.code) : info.what.c_str();
  text += '.';
  if (!info.advice.empty()) {
    std::string advice = info.advice;
    if (advice.front() >= 'a' && advice.front() <= 'z') {
      advice.front() = static_cast<char>(advice.front() - 'a' + 'A');
    }
    text += " " + advice + ".";
  }
  return text;
}

}  // namespace

meron_status report(const char* operation, meron_error** err, ErrorInfo info) noexcept {
  const meron_status code = info.code;
  note_blame(info);
  if (err == nullptr) return code;
  *err = nullptr;
  try {
    if (info.operation.empty()) info.operation = operation;
    auto error = std::make_unique<meron_error>();
    error->message = compose(info);
    error->info = std::move(info);
    *err = error.release();
  } catch (...) {
    // No memory is left for the detail; the status says what counts.
  }
  return code;
}

Status hand_out(char** out, const std::string& text) {
  char* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) {
    return Error(MERON_E_NO_MEMORY, fmt::format("no memory for a text of {} bytes", text.size()));
  }
  std::memcpy(copy, text.c_str(), text.size() + 1);
  *out = copy;
  return Ok{};
}

Result<Units> get_units(const meron_unit* units, size_t count) {
  if (count == 0) {
    return Error(MERON_E_ARGUMENT, "no unit was given", "pass one or more");
  }
  MERON_TRY(need(units, "units"));
  Units result;
  for (size_t i = 0; i < count; ++i) {
    MERON_ASSIGN(const auto holder, get<UnitHolder>(units[i]));
    if (result.context && result.context != holder->context) {
      return Error(MERON_E_HANDLE,
                   fmt::format("unit '{}' belongs to another context", holder->value->name()),
                   "pass units of one context");
    }
    result.context = holder->context;
    result.units.push_back(holder->value);
  }
  return result;
}

Error missing(const char* name) {
  return Error(MERON_E_ARGUMENT, fmt::format("{} is NULL", name),
               fmt::format("pass a valid pointer as {}", name))
      .on(name);
}

Status check_index(const Unit& unit, const char* what, size_t count, uint64_t index) {
  if (index < count) return Ok{};
  return Error(MERON_E_ARGUMENT,
               fmt::format("unit '{}' has {} {}, so there is none of index {}", unit.name(), count,
                           what, index),
               "give an index below that number")
      .on(unit.name());
}

Error wrong_timeout(int64_t timeout_ns) {
  return Error(MERON_E_ARGUMENT, fmt::format("the timeout is {} ns", timeout_ns),
               "give 0 or more, or -1 for the default")
      .on("timeout");
}

}  // namespace meron::capi

using namespace meron;        // NOLINT: this file is the C side of that namespace
using namespace meron::capi;  // NOLINT

extern "C" {

meron_status meron_error_code(const meron_error* error) {
  return error == nullptr ? MERON_OK : error->info.code;
}
const char* meron_error_message(const meron_error* error) {
  return error == nullptr ? "" : error->message.c_str();
}
const char* meron_error_operation(const meron_error* error) {
  return error == nullptr ? "" : error->info.operation.c_str();
}
const char* meron_error_subject(const meron_error* error) {
  return error == nullptr ? "" : error->info.subject.c_str();
}
const char* meron_error_advice(const meron_error* error) {
  return error == nullptr ? "" : error->info.advice.c_str();
}
int32_t meron_error_rank(const meron_error* error) {
  return error == nullptr ? MERON_RANK_NONE : error->info.rank;
}
int32_t meron_error_peer(const meron_error* error) {
  return error == nullptr ? MERON_RANK_NONE : error->info.peer;
}
void meron_error_free(meron_error* error) {
  delete error;
}

const char* meron_status_name(meron_status status) {
  return status_name(status);
}

uint32_t meron_version(void) {
  return MERON_VERSION;
}

#define MERON_TEXT_INNER(x) #x
#define MERON_TEXT(x) MERON_TEXT_INNER(x)
const char* meron_version_string(void) {
  return MERON_TEXT(MERON_VERSION_MAJOR) "." MERON_TEXT(MERON_VERSION_MINOR) "." MERON_TEXT(
      MERON_VERSION_PATCH);
}

meron_status meron_system_info(char** out, meron_error** err) {
  return guard("system_info", err, [&]() -> Status {
    MERON_TRY(need(out, "out"));
    return hand_out(out, system_info_json());
  });
}

void meron_string_free(char* string) {
  std::free(string);
}

size_t meron_dtype_size(meron_dtype dtype) {
  if (dtype == MERON_F64 || dtype == MERON_I64) return 8;
  return valid_dtype(dtype) ? size_of(static_cast<DType>(dtype)) : 0;
}

}  // extern "C"

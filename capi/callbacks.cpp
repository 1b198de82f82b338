// SPDX-License-Identifier: Apache-2.0
#include "capi/callbacks.h"

#include <fmt/format.h>

#include <algorithm>

namespace meron::capi {
namespace {

// These only read. The call that runs the callback finds its objects unchanged.
constexpr std::string_view kLooks[] = {
    "checkpoint_get_info", "checkpoint_get_progress", "checkpoint_text", "context_flight_record",
    "context_plan_json", "context_predict", "context_rank", "context_stats", "context_transport",
    "context_world", "context_world_size", "future_poll", "gather_dlpack", "gather_poll",
    "gather_view", "group_rank", "group_size", "group_status", "io_buffer_get_info", "io_describe",
    "io_get_info", "io_request_poll", "optimizer_get_info", "optimizer_get_group",
    "optimizer_param_steps", "optimizer_state_view", "param_get_info", "param_name",
    "schedule_get_info", "schedule_view", "system_info", "unit_flat", "unit_get_info", "unit_name",
    "unit_param", "update_poll", "update_view",
    // A plan is data of its own.
    "plan_json", "plan_parse", "plan_predict", "plan_preset", "plan_table"};

// Releases only queue what has to wait. An abort ends waits.
constexpr std::string_view kReleases[] = {
    "checkpoint_cancel_save", "checkpoint_release",       "future_release",
    "gather_release",         "gather_release_on_stream", "group_abort",
    "group_release",          "io_buffer_release",        "io_close",
    "io_request_release",     "optimizer_release",        "param_release",
    "plan_release",           "schedule_release",         "unit_release",
    "update_release"};

// An allocator or a transport may be called by a thread that a close waits for.
constexpr std::string_view kClose = "context_close";

struct Words {
  const char *name, *end;
};
Words words_of(Callback callback) {
  switch (callback) {
    case Callback::log:
      return {"the log callback", "it has returned"};
    case Callback::should_stop:
      return {"the should_stop callback", "the wait has returned"};
    case Callback::allocator:
      return {"the device allocator", "it has returned"};
    case Callback::transport:
      return {"a function of the custom transport", "it has returned"};
    case Callback::none:
      break;
  }
  return {"no callback", ""};
}

template <size_t N>
bool has(const std::string_view (&names)[N], std::string_view name) {
  return std::find(names, names + N, name) != names + N;
}

}  // namespace

Status check_in_callback(std::string_view function) {
  const Callback callback = CallbackScope::here();
  if (callback == Callback::none) return Ok{};
  const bool closes = callback == Callback::log || callback == Callback::should_stop;
  if (function.ends_with("_init") || has(kLooks, function) || has(kReleases, function) ||
      (closes && function == kClose)) {
    return Ok{};
  }
  const Words words = words_of(callback);
  return Error(MERON_E_STATE,
               fmt::format("this is called from {}, which may only look and release", words.name),
               fmt::format("call it after {}", words.end));
}

}  // namespace meron::capi

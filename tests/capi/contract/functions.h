// SPDX-License-Identifier: Apache-2.0
// Generated from include/meron/*.h by tools/generate/generate.py: do not edit.
// Every function of the ABI that can fail, to be called with zeros, and whether a callback may.
#pragma once

#include <string>
#include <tuple>
#include <vector>

#include "meron/meron.h"

namespace meron::test {

struct Function {
  const char* name;
  meron_status (*call)(meron_error**);
};

// Calls it with null handles, null pointers and zeros.
template <class... A>
meron_status with_zeros(meron_status (*function)(A...), meron_error** err) {
  std::tuple<A...> arguments{};
  std::get<sizeof...(A) - 1>(arguments) = err;
  return std::apply(function, arguments);
}
// clang-format off
#define FUNCTION(name) {#name, [](meron_error** err) { return with_zeros(name, err); }}
// clang-format on

// Functions that look and release.
inline std::vector<Function> allowed_functions() {
  return {
      FUNCTION(meron_allocator_init),
      FUNCTION(meron_checkpoint_cancel_save),
      FUNCTION(meron_checkpoint_export_options_init),
      FUNCTION(meron_checkpoint_get_info),
      FUNCTION(meron_checkpoint_get_progress),
      FUNCTION(meron_checkpoint_load_options_init),
      FUNCTION(meron_checkpoint_release),
      FUNCTION(meron_checkpoint_save_options_init),
      FUNCTION(meron_checkpoint_tensor_init),
      FUNCTION(meron_checkpoint_text),
      FUNCTION(meron_checkpoint_write_options_init),
      FUNCTION(meron_context_flight_record),
      FUNCTION(meron_context_options_init),
      FUNCTION(meron_context_plan_json),
      FUNCTION(meron_context_predict),
      FUNCTION(meron_context_rank),
      FUNCTION(meron_context_stats),
      FUNCTION(meron_context_transport),
      FUNCTION(meron_context_world),
      FUNCTION(meron_context_world_size),
      FUNCTION(meron_future_poll),
      FUNCTION(meron_future_release),
      FUNCTION(meron_future_wait),
      FUNCTION(meron_gather_dlpack),
      FUNCTION(meron_gather_options_init),
      FUNCTION(meron_gather_release_on_stream),
      FUNCTION(meron_gather_view),
      FUNCTION(meron_group_abort),
      FUNCTION(meron_group_rank),
      FUNCTION(meron_group_release),
      FUNCTION(meron_group_size),
      FUNCTION(meron_group_status),
      FUNCTION(meron_io_buffer_get_info),
      FUNCTION(meron_io_buffer_release),
      FUNCTION(meron_io_close),
      FUNCTION(meron_io_describe),
      FUNCTION(meron_io_get_info),
      FUNCTION(meron_io_options_init),
      FUNCTION(meron_optimizer_get_group),
      FUNCTION(meron_optimizer_get_info),
      FUNCTION(meron_optimizer_group_init),
      FUNCTION(meron_optimizer_param_steps),
      FUNCTION(meron_optimizer_release),
      FUNCTION(meron_optimizer_rule_init),
      FUNCTION(meron_optimizer_state_view),
      FUNCTION(meron_param_desc_init),
      FUNCTION(meron_param_get_info),
      FUNCTION(meron_param_name),
      FUNCTION(meron_param_release),
      FUNCTION(meron_plan_json),
      FUNCTION(meron_plan_parse),
      FUNCTION(meron_plan_predict),
      FUNCTION(meron_plan_preset),
      FUNCTION(meron_plan_release),
      FUNCTION(meron_plan_table),
      FUNCTION(meron_reduce_options_init),
      FUNCTION(meron_schedule_get_info),
      FUNCTION(meron_schedule_options_init),
      FUNCTION(meron_schedule_release),
      FUNCTION(meron_schedule_view),
      FUNCTION(meron_system_info),
      FUNCTION(meron_transport_init),
      FUNCTION(meron_unit_flat),
      FUNCTION(meron_unit_get_info),
      FUNCTION(meron_unit_name),
      FUNCTION(meron_unit_param),
      FUNCTION(meron_unit_release),
      FUNCTION(meron_update_view),
      FUNCTION(meron_workload_init),
  };
}

// Functions that begin, change or wait for something.
inline std::vector<Function> refused_functions() {
  return {
      FUNCTION(meron_all_reduce_begin),
      FUNCTION(meron_barrier_begin),
      FUNCTION(meron_broadcast_begin),
      FUNCTION(meron_checkpoint_export),
      FUNCTION(meron_checkpoint_list),
      FUNCTION(meron_checkpoint_load),
      FUNCTION(meron_checkpoint_open),
      FUNCTION(meron_checkpoint_read),
      FUNCTION(meron_checkpoint_remove),
      FUNCTION(meron_checkpoint_save_begin),
      FUNCTION(meron_checkpoint_wait_copied),
      FUNCTION(meron_checkpoint_write),
      FUNCTION(meron_context_event_fd),
      FUNCTION(meron_context_open),
      FUNCTION(meron_context_progress),
      FUNCTION(meron_future_finish),
      FUNCTION(meron_future_wait_any),
      FUNCTION(meron_gather_begin),
      FUNCTION(meron_gather_wait_stream),
      FUNCTION(meron_gradient_clip),
      FUNCTION(meron_gradient_view),
      FUNCTION(meron_group_create),
      FUNCTION(meron_io_buffer_create),
      FUNCTION(meron_io_open),
      FUNCTION(meron_io_read),
      FUNCTION(meron_io_read_begin),
      FUNCTION(meron_io_wait),
      FUNCTION(meron_io_write),
      FUNCTION(meron_io_write_begin),
      FUNCTION(meron_optimizer_add_group),
      FUNCTION(meron_optimizer_create),
      FUNCTION(meron_optimizer_offload),
      FUNCTION(meron_optimizer_read_state),
      FUNCTION(meron_optimizer_reload),
      FUNCTION(meron_optimizer_set_group),
      FUNCTION(meron_optimizer_set_learning_rate),
      FUNCTION(meron_optimizer_set_max_norm),
      FUNCTION(meron_optimizer_set_param_steps),
      FUNCTION(meron_optimizer_set_skipped),
      FUNCTION(meron_optimizer_set_steps),
      FUNCTION(meron_optimizer_step_begin),
      FUNCTION(meron_optimizer_write_state),
      FUNCTION(meron_param_register),
      FUNCTION(meron_reduce_begin),
      FUNCTION(meron_reduce_consume),
      FUNCTION(meron_reduce_discard),
      FUNCTION(meron_reduce_finish_begin),
      FUNCTION(meron_reduce_scale_feedback),
      FUNCTION(meron_reduce_wait),
      FUNCTION(meron_reduced_dlpack),
      FUNCTION(meron_reduced_view),
      FUNCTION(meron_schedule_create),
      FUNCTION(meron_schedule_drop),
      FUNCTION(meron_schedule_enter),
      FUNCTION(meron_schedule_leave),
      FUNCTION(meron_schedule_reset),
      FUNCTION(meron_schedule_start_pass),
      FUNCTION(meron_unit_create),
      FUNCTION(meron_unit_destroy),
      FUNCTION(meron_update_begin),
      FUNCTION(meron_update_publish),
      FUNCTION(meron_update_write),
  };
}

// log and should_stop may call it, the other callbacks may not.
inline Function close_function() {
  return FUNCTION(meron_context_close);
}

#undef FUNCTION

// They return no status, or read an error.
inline std::vector<std::string> functions_that_cannot_fail() {
  // clang-format off
  return {
      "meron_dtype_size",
      "meron_error_advice",
      "meron_error_code",
      "meron_error_free",
      "meron_error_message",
      "meron_error_operation",
      "meron_error_peer",
      "meron_error_rank",
      "meron_error_subject",
      "meron_status_name",
      "meron_string_free",
      "meron_version",
      "meron_version_string",
  };
  // clang-format on
}

}  // namespace meron::test

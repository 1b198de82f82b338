// SPDX-License-Identifier: Apache-2.0
// Generated from capi/api.json by tools/generate/generate.py: do not edit.
#include "operations.h"

namespace conformance {
namespace {

void call_function(Session& session, const Statement& statement) {
  const std::string& function = statement.get("function");
  if (function == "meron_context_plan_json") {
    char* out = nullptr;
    call(meron_context_plan_json, &out, session.current().handle);
    const std::string text = out;
    meron_string_free(out);
    check_has(text, statement);
    return;
  }
  if (function == "meron_context_event_fd") {
    int32_t out = 0;
    call(meron_context_event_fd, &out, session.current().handle);
    const auto seen = static_cast<double>(out);
    check_equal("the result", seen, statement.number("is", seen));
    return;
  }
  if (function == "meron_checkpoint_cancel_save") {
    call(meron_checkpoint_cancel_save, session.current().handle);
    return;
  }
  if (function == "meron_plan_json") {
    char* out = nullptr;
    call(meron_plan_json, &out, session.find<Plan>(statement.name).handle);
    const std::string text = out;
    meron_string_free(out);
    check_has(text, statement);
    return;
  }
  if (function == "meron_plan_table") {
    char* out = nullptr;
    call(meron_plan_table, &out, session.find<Plan>(statement.name).handle);
    const std::string text = out;
    meron_string_free(out);
    check_has(text, statement);
    return;
  }
  if (function == "meron_barrier_begin") {
    meron_future out{};
    call(meron_barrier_begin, &out, session.group(statement.name).handle);
    finish_or_keep(session, statement, out);
    return;
  }
  if (function == "meron_reduce_consume") {
    call(meron_reduce_consume, session.find<Unit>(statement.name).handle);
    return;
  }
  if (function == "meron_reduce_scale_feedback") {
    call(meron_reduce_scale_feedback, session.find<Unit>(statement.name).handle,
         static_cast<double>(statement.number("factor", 0)));
    return;
  }
  if (function == "meron_optimizer_set_max_norm") {
    call(meron_optimizer_set_max_norm, session.find<Optimizer>(statement.name).handle,
         static_cast<double>(statement.number("max_norm", 0)));
    return;
  }
  if (function == "meron_schedule_drop") {
    call(meron_schedule_drop, session.find<Schedule>(statement.name).handle);
    return;
  }
  if (function == "meron_io_describe") {
    char* out = nullptr;
    call(meron_io_describe, &out, session.find<Io>(statement.name).handle);
    const std::string text = out;
    meron_string_free(out);
    check_has(text, statement);
    return;
  }
  throw Malformed{"there is no call of '" + function + "'"};
}

}  // namespace

Operations call_operations() {
  return {{"call", call_function}};
}

}  // namespace conformance

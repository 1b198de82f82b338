// SPDX-License-Identifier: Apache-2.0
#include "meron/plan.h"

#include <string_view>

#include "capi/guard.h"

using namespace meron;        // NOLINT: this file is the C side of that namespace
using namespace meron::capi;  // NOLINT

extern "C" {

meron_status meron_plan_preset(meron_plan* out, const char* name, meron_error** err) {
  return guard("plan_preset", err, [&]() -> Status {
    MERON_TRY(need(out, "out"));
    MERON_TRY(need(name, "name"));
    MERON_ASSIGN(Plan plan, preset(name));
    return put<PlanHolder>(out, nullptr, std::move(plan));
  });
}

meron_status meron_plan_parse(meron_plan* out, const char* json, size_t bytes, meron_error** err) {
  return guard("plan_parse", err, [&]() -> Status {
    MERON_TRY(need(out, "out"));
    MERON_TRY(need(json, "json"));
    MERON_ASSIGN(Plan plan, parse_plan(std::string_view(json, bytes)));
    return put<PlanHolder>(out, nullptr, std::move(plan));
  });
}

meron_status meron_plan_json(char** out, meron_plan plan, meron_error** err) {
  return guard("plan_json", err, [&]() -> Status {
    MERON_TRY(need(out, "out"));
    MERON_ASSIGN(const auto holder, get<PlanHolder>(plan));
    return hand_out(out, to_json(holder->value, 2));
  });
}

meron_status meron_plan_table(char** out, meron_plan plan, meron_error** err) {
  return guard("plan_table", err, [&]() -> Status {
    MERON_TRY(need(out, "out"));
    MERON_ASSIGN(const auto holder, get<PlanHolder>(plan));
    return hand_out(out, to_table(holder->value));
  });
}

meron_status meron_workload_init(meron_workload* workload, size_t struct_size, meron_error** err) {
  return guard("workload_init", err, [&]() -> Status {
    const meron_workload initial = MERON_WORKLOAD_INIT;
    return init_options(workload, struct_size, initial);
  });
}

meron_status meron_plan_predict(char** out, meron_plan plan, const char* model, size_t bytes,
                                const meron_workload* workload, uint32_t table, meron_error** err) {
  return guard("plan_predict", err, [&]() -> Status {
    MERON_TRY(need(out, "out"));
    MERON_TRY(need(model, "model"));
    MERON_ASSIGN(const auto holder, get<PlanHolder>(plan));
    const meron_workload defaults = MERON_WORKLOAD_INIT;
    MERON_ASSIGN(const meron_workload given, read_options(workload, defaults, "workload"));
    MERON_ASSIGN(const ModelDesc desc, parse_model(std::string_view(model, bytes)));
    MERON_ASSIGN(const Prediction prediction,
                 predict(holder->value, desc,
                         {given.ranks, given.micro_batches, given.gathers_per_micro_batch,
                          given.ranks_per_node, given.optimizer_states}));
    return hand_out(out, table != 0 ? to_table(prediction) : to_json(prediction));
  });
}

meron_status meron_plan_release(meron_plan plan, meron_error** err) {
  return guard("plan_release", err, [&]() -> Status {
    MERON_TRY(take<PlanHolder>(plan));
    return Ok{};
  });
}

}  // extern "C"

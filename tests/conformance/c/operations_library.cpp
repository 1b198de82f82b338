// SPDX-License-Identifier: Apache-2.0
#include "operations.h"

namespace conformance {
namespace {

// The text that a function returns through `char **out`.
template <class Function, class... Arguments>
std::string text_of(Function function, Arguments... arguments) {
  char* out = nullptr;
  call(function, &out, arguments...);
  const std::unique_ptr<char, void (*)(char*)> owned(out, meron_string_free);
  return owned.get();
}

meron_plan parsed(const std::string& json) {
  meron_plan plan{};
  call(meron_plan_parse, &plan, json.data(), json.size());
  return plan;
}

void library(Session&, const Statement&) {
  check_equal("the version", meron_version(), MERON_VERSION);
  check_equal("the version", meron_version_string(),
              std::to_string(MERON_VERSION_MAJOR) + "." + std::to_string(MERON_VERSION_MINOR) +
                  "." + std::to_string(MERON_VERSION_PATCH));
  check(meron_dtype_size(MERON_F32) == 4, "the size of f32");
  check(meron_dtype_size(MERON_BF16) == 2, "the size of bf16");
  check(meron_dtype_size(MERON_F16) == 2, "the size of f16");
  check(meron_dtype_size(MERON_F64) == 8, "the size of f64");
  check(meron_dtype_size(MERON_I64) == 8, "the size of i64");
  check_equal("0", meron_status_name(MERON_OK), "MERON_OK");
  check_equal("-100", meron_status_name(-100), "MERON_E_ARGUMENT");
  check_equal("-300", meron_status_name(-300), "MERON_E_TIMEOUT");
  check_equal("-402", meron_status_name(-402), "MERON_E_INTERNAL");
}

void system(Session&, const Statement& statement) {
  check_has(text_of(meron_system_info), statement);
}

void plan(Session& session, const Statement& statement) {
  meron_plan plan{};
  if (statement.has("preset")) {
    call(meron_plan_preset, &plan, statement.get("preset").c_str());
  } else {
    plan = parsed(statement.get("json"));
  }
  session.keep(statement.name, std::make_unique<Plan>(plan));
}

void plan_json(Session& session, const Statement& statement) {
  const std::string json = text_of(meron_plan_json, session.find<Plan>(statement.name).handle);
  check_has(json, statement);
  const Plan again(parsed(json));
  check_equal("the plan read back", text_of(meron_plan_json, again.handle), json);
}

void plan_same(Session& session, const Statement& statement) {
  check_equal("the plan", text_of(meron_plan_json, session.find<Plan>(statement.name).handle),
              text_of(meron_plan_json, session.find<Plan>(statement.get("other")).handle));
}

void plan_predict(Session& session, const Statement& statement) {
  meron_workload workload{};
  call(meron_workload_init, &workload, sizeof workload);
  workload.ranks = static_cast<uint32_t>(statement.number("ranks", 1));
  workload.micro_batches = static_cast<uint32_t>(statement.number("micro_batches", 1));
  workload.gathers_per_micro_batch = static_cast<uint32_t>(statement.number("gathers", 2));
  workload.ranks_per_node = static_cast<uint32_t>(statement.number("node", 0));
  workload.optimizer_states = static_cast<uint32_t>(statement.number("states", 2));
  const std::string& model = statement.get("model");
  check_has(text_of(meron_plan_predict, session.find<Plan>(statement.name).handle, model.data(),
                    model.size(), &workload, static_cast<uint32_t>(statement.number("table", 0))),
            statement);
}

}  // namespace

Operations library_operations() {
  return {{"library", library},     {"system", system},       {"plan", plan},
          {"plan_json", plan_json}, {"plan_same", plan_same}, {"plan_predict", plan_predict}};
}

}  // namespace conformance

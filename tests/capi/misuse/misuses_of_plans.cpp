// SPDX-License-Identifier: Apache-2.0
// Texts that are no plans, models or clusters, and workloads that cannot be.
#include "tests/capi/misuse/objects.h"

namespace meron::test {
namespace {

struct Outs {
  meron_plan plan{};
  char* text = nullptr;
};
Outs out;
const char kModel[] = R"({"parameters": 100, "layers": 2, "dtype": "f32"})";

const std::vector<std::string>& bad_plans() {
  static const std::vector<std::string> texts = {
      "",
      "{",
      "[]",
      "null",
      "{\"preset\": \"zero9\"}",
      "{\"preset\": 3}",
      "{\"presets\": \"zero1\"}",
      "{\"preset\": \"zero1\", \"preset\": \"zero2\"}",
      "{\"preset\": \"zero2\", \"gradient\": {\"dtype\": \"f64\"}}",
      "{\"preset\": \"zero2\", \"gradient_buckets\": 0}",
      "{\"preset\": \"zero2\", \"gradient_buckets\": 1e9}",
      "{\"preset\": \"zero2\"} x",
      std::string("{\"preset\": \"zero2\"\0}", 19),
      "{\"preset\": \"zero\xff\"}",
      std::string(3000, '['),
  };
  return texts;
}

}  // namespace

std::vector<Misuse> misuses_of_plans() {
  return {
      {"meron_plan_preset: unknown name",
       {MERON_E_ARGUMENT},
       [](Objects&, Random& random) {
         const std::vector<const char*> names = {"", "zero4", "ZERO1", "zero1 ", "\xff\xff"};
         return FAILURE_OF(meron_plan_preset, &out.plan, random.pick(names));
       }},
      {"meron_plan_parse: malformed",
       {MERON_E_PARSE, MERON_E_ARGUMENT, MERON_E_UNSUPPORTED},
       [](Objects&, Random& random) {
         const std::string& text = random.pick(bad_plans());
         // A copy of the exact size, so that a read past it is seen.
         const std::vector<char> exact(text.begin(), text.end());
         return FAILURE_OF(meron_plan_parse, &out.plan, exact.empty() ? "" : exact.data(),
                           exact.size());
       }},
      {"meron_plan_predict: malformed model",
       {MERON_E_PARSE, MERON_E_ARGUMENT, MERON_E_UNSUPPORTED},
       [](Objects& o, Random& random) {
         const std::vector<std::string> models = {
             "",
             "{}",
             "[1]",
             R"({"parameters": -1, "layers": 2, "dtype": "f32"})",
             R"({"parameters": 10, "layers": -1, "dtype": "f32"})",
             R"({"parameters": 1e30, "layers": 1, "dtype": "f32"})",
             R"({"parameters": 10, "layers": 1, "dtype": "i8"})",
             R"({"units": [{"name": "a"}]})"};
         const std::string& text = random.pick(models);
         return FAILURE_OF(meron_plan_predict, &out.text, o.plan, text.data(), text.size(), nullptr,
                           0);
       }},
      {"meron_plan_predict: impossible workload",
       {MERON_E_ARGUMENT},
       [](Objects& o, Random& random) {
         meron_workload workload = MERON_WORKLOAD_INIT;
         (random.below(2) == 0 ? workload.ranks : workload.micro_batches) = 0;
         return FAILURE_OF(meron_plan_predict, &out.text, o.plan, kModel, sizeof(kModel) - 1,
                           &workload, 0);
       }},
  };
}

}  // namespace meron::test

// SPDX-License-Identifier: Apache-2.0
#include "plan/plan_json.h"
#include "plan/table.h"
#include "plan_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace meron;
  const Result<Plan> plan = parse_plan({reinterpret_cast<const char*>(data), size});
  if (!plan) {
    require_good_error(plan);
    return 0;
  }
  require(validate(*plan).ok(), "a plan that was read is valid");
  const Result<Plan> again = parse_plan(to_json(*plan));
  require(again.ok() && *again == *plan, "a plan survives the way to JSON and back");
  require(valid_utf8(to_table(*plan)), "a plan can be printed");
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
#include "plan_fuzz.h"
#include "tools/meron/planning/model_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace meron;
  const Result<ModelDesc> model =
      planning::parse_model_or_config({reinterpret_cast<const char*>(data), size});
  if (model) {
    require_predictable(*model);
    const Result<ModelDesc> again = parse_model(to_json(*model));
    require(again.ok() && *again == *model, "a model survives the way to JSON and back");
  } else {
    require_good_error(model);
  }
  return 0;
}

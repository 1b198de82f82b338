// SPDX-License-Identifier: Apache-2.0
#include "plan/model_desc.h"
#include "plan_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace meron;
  const Result<ModelDesc> model = parse_model({reinterpret_cast<const char*>(data), size});
  if (model) {
    require_predictable(*model);
    const Result<ModelDesc> again = parse_model(to_json(*model));
    require(again.ok() && *again == *model, "a model survives the way to JSON and back");
  } else {
    require_good_error(model);
  }
  return 0;
}

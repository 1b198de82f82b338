// SPDX-License-Identifier: Apache-2.0
// The input is a header without its length field, so that the search is about the JSON. How much
// data follows is taken from the header's own largest offset, else hardly any input would pass.
#include "plan_fuzz.h"
#include "safetensors_input.h"
#include "tools/meron/planning/safetensors_model.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace meron;
  using planning::model_from_safetensors;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  // As a whole file, length field included.
  if (const Result<ModelDesc> raw = model_from_safetensors(input, size); !raw) {
    require_good_error(raw);
  }

  const SafetensorsInput file = safetensors_input(input);
  const Result<ModelDesc> model = model_from_safetensors(file.head, file.bytes);
  if (model) {
    require_predictable(*model);
    const Result<ModelDesc> again = parse_model(to_json(*model));
    require(again.ok() && *again == *model, "a model survives the way to JSON and back");
  } else {
    require_good_error(model);
  }
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
// The input is a header without its length field, so that the search is about the JSON. How much
// data follows is taken from the header's own largest offset, else hardly any input would pass.
#include <algorithm>
#include <charconv>
#include <string>

#include "plan/model_desc.h"
#include "plan_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace meron;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  // As a whole file, length field included.
  if (const Result<ModelDesc> raw = model_from_safetensors(input, size); !raw) {
    require_good_error(raw);
  }

  std::string head;
  for (int i = 0; i < 8; ++i) head += static_cast<char>(uint64_t{size} >> (8 * i) & 0xFF);
  head += input;
  uint64_t data_bytes = 0;
  for (size_t at = input.find("data_offsets"); at != input.npos;
       at = input.find("data_offsets", at + 1)) {
    const size_t comma = std::min(input.find(',', at), input.size() - 1);
    uint64_t end = 0;
    std::from_chars(input.data() + comma + 1, input.data() + input.size(), end);
    data_bytes = std::max(data_bytes, std::min(end, UINT64_MAX - head.size()));
  }
  const Result<ModelDesc> model = model_from_safetensors(head, head.size() + data_bytes);
  if (model) {
    require_predictable(*model);
    const Result<ModelDesc> again = parse_model(to_json(*model));
    require(again.ok() && *again == *model, "a model survives the way to JSON and back");
  } else {
    require_good_error(model);
  }
  return 0;
}

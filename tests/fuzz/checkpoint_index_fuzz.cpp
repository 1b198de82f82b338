// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/hf_index.h"
#include "checkpoint/piece_name.h"
#include "plan_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace meron;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const Result<checkpoint::HfIndex> index = checkpoint::parse_hf_index(input);
  if (!index) {
    const meron_status code = index.error().code();
    require(code == MERON_E_PARSE || code == MERON_E_CORRUPT, "the code is one of the header's");
    require_good_message(index);
    return 0;
  }
  for (const std::string& file : index->files) {
    require(file.find('/') == file.npos && file.front() != '.', "a file stays in its directory");
  }
  for (const auto& tensor : index->tensors) {
    require(tensor.file < index->files.size(), "a tensor has a file");
  }
  const Result<checkpoint::HfIndex> again = checkpoint::parse_hf_index(to_json(*index));
  require(again.ok() && *again == *index, "an index survives the way to JSON and back");
  return 0;
}

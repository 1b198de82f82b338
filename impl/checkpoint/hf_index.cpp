// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/hf_index.h"

#include <fmt/format.h>

#include <iterator>
#include <map>

#include "checkpoint/manifest.h"
#include "checkpoint/piece_name.h"
#include "plan/json_text.h"
#include "plan/text.h"
#include "plan/unit_layout.h"

namespace meron::checkpoint {
namespace {

constexpr std::string_view kShardSuffix = ".safetensors";

Result<std::string_view> read_shard_name(JsonValue value) {
  MERON_ASSIGN(const std::string_view name, value.string());
  if (const Status valid = check_file_name(name); !valid) {
    return value.error(MERON_E_CORRUPT, valid.error().info().what, valid.error().info().advice);
  }
  if (!name.ends_with(kShardSuffix)) {
    return value.error(MERON_E_CORRUPT,
                       fmt::format("the file {} is no safetensors file", in_quotes(name)),
                       "convert the model to safetensors");
  }
  return name;
}

void read_total(JsonValue root, uint64_t& total) {
  const auto metadata = root.find("metadata");
  const auto size = metadata ? metadata->find("total_size") : std::nullopt;
  if (!size) return;
  // Only a hint: no value of it makes an index invalid.
  if (const auto bytes = size->count(0, UINT64_MAX); bytes.ok()) total = *bytes;
}

}  // namespace

Result<HfIndex> parse_hf_index(std::string_view text) {
  MERON_ASSIGN(const JsonText json,
               JsonText::parse(text, std::string(kHfIndexFile),
                               {.bytes = kMaxManifest, .depth = kMaxManifestDepth}));
  const JsonValue root = json.root();
  MERON_TRY(root.object());
  HfIndex out;
  MERON_ASSIGN(const JsonValue map, root.require("weight_map"));
  read_total(root, out.total_bytes);
  MERON_TRY(map.object());
  std::map<std::string_view, uint32_t> known;  // ordered: no choice of names makes it slow
  for (auto value = map.first(); value; value = value->next()) {
    if (out.tensors.size() == kMaxTensors) {
      return map.error(MERON_E_PARSE, fmt::format("has more than {} tensors", kMaxTensors),
                       "no valid model has so many");
    }
    const std::string_view name = value->key();
    if (const Status valid = check_name(name); !valid) {
      return value->error(MERON_E_PARSE, valid.error().info().what, valid.error().info().advice);
    }
    MERON_ASSIGN(const std::string_view file, read_shard_name(*value));
    const auto [place, added] = known.try_emplace(file, static_cast<uint32_t>(out.files.size()));
    if (added) out.files.emplace_back(file);
    out.tensors.push_back({std::string(name), place->second});
  }
  return out;
}

std::string to_json(const HfIndex& index) {
  std::string text = "{\n";
  const auto out = std::back_inserter(text);
  if (index.total_bytes != 0) {
    fmt::format_to(out, "  \"metadata\": {{\n    \"total_size\": {}\n  }},\n", index.total_bytes);
  }
  text += "  \"weight_map\": {";
  const char* separator = "\n    ";
  for (const HfIndex::Tensor& tensor : index.tensors) {
    fmt::format_to(out, "{}{}: {}", separator, json_string(tensor.name),
                   json_string(index.files[tensor.file]));
    separator = ",\n    ";
  }
  fmt::format_to(out, "{}}}\n}}\n", index.tensors.empty() ? "" : "\n  ");
  return text;
}

}  // namespace meron::checkpoint

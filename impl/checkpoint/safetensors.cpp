// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/safetensors.h"

#include <fmt/format.h>

#include <iterator>

#include "base/layout.h"
#include "checkpoint/piece_name.h"
#include "plan/json_text.h"

namespace meron::checkpoint {
namespace {

constexpr std::string_view kDTypeAdvice = "read the file with a newer Meron";

std::string header_json(const std::vector<SafetensorsEntry>& entries,
                        const std::map<std::string, std::string>& metadata) {
  std::string json = "{";
  const auto out = std::back_inserter(json);
  const char* comma = "";
  if (!metadata.empty()) {
    json += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      fmt::format_to(out, "{}{}:{}", comma, json_string(key), json_string(value));
      comma = ",";
    }
    json += '}';
  }
  for (const SafetensorsEntry& entry : entries) {
    fmt::format_to(out, R"({}{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", comma,
                   json_string(entry.name), entry.dtype, fmt::join(entry.shape, ","), entry.begin,
                   entry.end);
    comma = ",";
  }
  json += '}';
  return json;
}

}  // namespace

std::map<std::string, std::string> file_metadata(const std::string& id) {
  return {{"format", "pt"}, {kIdKey, id}};
}

Result<SafetensorsHeader> parse_safetensors(std::string_view head, uint64_t file_size) {
  return read_safetensors_header(
      head, file_size,
      {.dtypes = safetensors_dtypes(), .advice = kDTypeAdvice, .name_bytes = kMaxPieceName});
}

Result<std::string> compose_safetensors(const std::vector<SafetensorsEntry>& entries,
                                        const std::map<std::string, std::string>& metadata) {
  const std::string json = header_json(entries, metadata);
  const uint64_t size = round_up(kSafetensorsLengthBytes + json.size(), kHeaderAlign);
  const uint64_t length = size - kSafetensorsLengthBytes;
  std::string head;
  head.reserve(size);
  for (size_t i = 0; i < kSafetensorsLengthBytes; ++i) {
    head += static_cast<char>(length >> (8 * i) & 0xFF);
  }
  head += json;
  head.resize(size, ' ');

  // The reader is the judge, so that both sides keep the same rules.
  const uint64_t data_bytes = entries.empty() ? 0 : entries.back().end;
  if (data_bytes > UINT64_MAX - size) {
    return Error(MERON_E_ARGUMENT, "the tensors have more bytes than a file can hold",
                 "pass entries without holes")
        .on("safetensors header");
  }
  Result<SafetensorsHeader> read = parse_safetensors(head, size + data_bytes);
  if (!read) {
    ErrorInfo info = read.error().info();
    if (info.code != MERON_E_NO_MEMORY) info.code = MERON_E_ARGUMENT;
    info.advice = "pass entries in the order of their data, with unique names and without holes";
    return Error(std::move(info));
  }
  if (read->entries != entries || read->metadata != metadata) {
    return Error(MERON_E_ARGUMENT,
                 "the entries are not in the order of their data, or a text is not "
                 "valid UTF-8",
                 "sort the entries by their offsets, and pass UTF-8")
        .on("safetensors header");
  }
  return head;
}

}  // namespace meron::checkpoint

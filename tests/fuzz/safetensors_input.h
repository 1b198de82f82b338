// SPDX-License-Identifier: Apache-2.0
// A safetensors file around the JSON of its header, so that the search is about the JSON.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

namespace meron {

struct SafetensorsInput {
  std::string head;    // length field and JSON
  uint64_t bytes = 0;  // of the file: the data end at the header's own largest offset
};

inline SafetensorsInput safetensors_input(std::string_view json) {
  SafetensorsInput out;
  for (int i = 0; i < 8; ++i) {
    out.head += static_cast<char>(uint64_t{json.size()} >> (8 * i) & 0xFF);
  }
  out.head += json;
  uint64_t data_bytes = 0;
  for (size_t at = json.find("data_offsets"); at != json.npos;
       at = json.find("data_offsets", at + 1)) {
    const size_t comma = std::min(json.find(',', at), json.size() - 1);
    uint64_t end = 0;
    std::from_chars(json.data() + comma + 1, json.data() + json.size(), end);
    data_bytes = std::max(data_bytes, std::min(end, UINT64_MAX - out.head.size()));
  }
  out.bytes = out.head.size() + data_bytes;
  return out;
}

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
// The header of a safetensors file: 8 bytes of length, little endian, then a JSON object that maps
// tensor names to { dtype, shape, data_offsets: [begin, end) in the data behind the header }, and
// perhaps "__metadata__" to an object of strings. Pure: the caller reads the bytes.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "plan/model_desc.h"

namespace meron {

struct SafetensorsEntry {
  std::string name;
  std::string dtype;  // as the file writes it: "BF16"
  std::vector<uint64_t> shape;
  uint64_t begin = 0, end = 0;  // of its bytes in the data

  bool operator==(const SafetensorsEntry&) const = default;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in the order of their data
  std::map<std::string, std::string> metadata;
  uint64_t data_begin = 0;  // in the file

  bool operator==(const SafetensorsHeader&) const = default;
};

struct SafetensorsReading {
  std::span<const std::string_view>
      dtypes;                         // that the caller takes; others are MERON_E_UNSUPPORTED
  std::string_view advice;            // about another dtype
  size_t name_bytes = kMaxNameBytes;  // of a tensor
};

// The size of an element in bytes; 0: no dtype of safetensors.
uint32_t safetensors_element_bytes(std::string_view dtype);

// All of the dtypes above.
std::span<const std::string_view> safetensors_dtypes();

// `head` begins at the file's first byte and holds at least safetensors_head_bytes() bytes; what
// follows is ignored. Strict: the tensors fill the data exactly, without overlaps and holes, and
// each has the bytes that its shape needs.
Result<SafetensorsHeader> read_safetensors_header(std::string_view head, uint64_t file_size,
                                                  const SafetensorsReading& reading);

}  // namespace meron

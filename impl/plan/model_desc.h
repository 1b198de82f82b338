// SPDX-License-Identifier: Apache-2.0
// What a prediction must know of a model: its units and their flats. Built from a parameter count
// or from JSON text. No I/O: the caller reads the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "plan/unit_layout.h"

namespace meron {

struct UnitDesc {
  std::string name;
  std::vector<FlatDesc> flats;

  bool operator==(const UnitDesc&) const = default;
};

struct ModelDesc {
  std::vector<UnitDesc> units;

  bool operator==(const ModelDesc&) const = default;
};

inline constexpr uint32_t kMaxLayers = 100'000;
inline constexpr size_t kMaxModelText = size_t{256} << 20;    // bytes
inline constexpr uint32_t kMaxModelDepth = 8;                 // of nested values
inline constexpr size_t kMaxSafetensorsHeader = 100'000'000;  // bytes, as the format says
inline constexpr size_t kSafetensorsLengthBytes = 8;

// `parameters` elements split as evenly as whole numbers go into layers + 1 units: "layers.0" and
// so on, and "rest", for embedding and head.
Result<ModelDesc> model_from_size(uint64_t parameters, uint32_t layers, DType dtype);

// Strict, with line and key in errors. Either
//   { "parameters": 7000000000, "layers": 32, "dtype": "bf16" }
// or, with unique unit names and tensor names that are unique in the model,
//   { "units": [ { "name": "block.0", "tensors": [
//       { "name": "block.0.w", "shape": [512, 128], "dtype": "bf16", "trainable": true } ] } ] }
// where "trainable" may be left out. Dtypes are f32, bf16 and f16, or as PyTorch names them.
Result<ModelDesc> parse_model(std::string_view json);

// Text that parse_model() reads back to an equal model, if the model came from a function of this
// header: each flat is one tensor of its padded size. indent < 0: one line.
std::string to_json(const ModelDesc& model, int indent = 2);

// From the first 8 bytes of a safetensors file, the bytes of its length field and header.
Result<uint64_t> safetensors_head_bytes(std::string_view first, uint64_t file_size);

}  // namespace meron

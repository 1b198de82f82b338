// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/quant_reference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/quant_block.h"
#include "kernels/cpu/reference.h"

namespace meron::kernels {
namespace {

float load(const void* array, Type type, size_t i) {
  float value;
  convert_reference(&value, Type::f32, static_cast<const std::byte*>(array) + i * size_of(type),
                    type, 1);
  return value;
}

void store(void* array, Type type, size_t i, float value) {
  convert_reference(static_cast<std::byte*>(array) + i * size_of(type), type, &value, Type::f32, 1);
}

void butterflies(float* run) {
  for (size_t h = 1; h < kQuantRun; h *= 2) {
    for (size_t i = 0; i < kQuantRun; ++i) {
      if ((i & h) != 0) continue;
      const float a = run[i], b = run[i + h];
      run[i] = a + b;
      run[i + h] = a - b;
    }
  }
}

void transform(float* values, QuantFormat format) {
  for (size_t i = 0; i < format.block; i += kQuantRun) butterflies(values + i);
}

int32_t nearest(float value) {
  return static_cast<int32_t>(std::nearbyint(value));
}

// Element i of a block.
void put(std::byte* block, QuantFormat format, size_t i, int32_t q) {
  if (format.bits == 8) {
    block[i] = static_cast<std::byte>(q);
    return;
  }
  std::byte& both = block[i / 64 * 32 + i % 32];
  const auto half = static_cast<std::byte>(q & 0xf);
  both = i % 64 < 32 ? half : both | half << 4;  // the low half is first
}

int32_t get(const std::byte* block, QuantFormat format, size_t i) {
  if (format.bits == 8) return static_cast<int8_t>(block[i]);
  const auto both = static_cast<int32_t>(block[i / 64 * 32 + i % 32]);
  const int32_t half = i % 64 < 32 ? both & 0xf : both >> 4;
  return half - (half >= 8 ? 16 : 0);
}

void decode_block(float* values, const std::byte* payload, float step, QuantFormat format) {
  for (size_t i = 0; i < format.block; ++i) {
    values[i] = static_cast<float>(get(payload, format, i)) * step;
  }
  if (format.hadamard) transform(values, format);
}

// Encodes v[0, format.block), whose first element has the number `number`; returns the step.
BlockScale encode_block(std::byte* payload, const float* v, QuantFormat format, uint64_t seed,
                        uint64_t number) {
  std::vector<float> t(v, v + format.block);
  if (format.hadamard) {
    for (float& value : t) value *= kTransformScale;
    transform(t.data(), format);
  }
  uint32_t magnitude = 0;
  for (const float value : t) {
    magnitude = std::max(magnitude, std::bit_cast<uint32_t>(value) & 0x7fffffffu);
  }
  const BlockScale scale(magnitude, format);
  for (size_t i = 0; i < format.block; ++i) {
    int32_t q = 0;
    if (scale.kind == BlockScale::Kind::ordinary) {
      if (format.stochastic) {
        const uint64_t key = quant_key(seed, static_cast<uint32_t>((number + i) >> 32));
        const uint32_t random = quant_hash(key, static_cast<uint32_t>(number + i));
        q = (nearest(t[i] * (scale.inverse * 0x1p24f)) + static_cast<int32_t>(random >> 8)) >> 24;
      } else {
        q = nearest(t[i] * scale.inverse);
      }
    }
    put(payload, format, i, q);
  }
  return scale;
}

void add_error(QuantError& error, BlockScale::Kind kind, const float* v, const float* decoded,
               size_t n) {
  if (kind == BlockScale::Kind::zero) return;
  if (kind == BlockScale::Kind::nonfinite) {
    return error.add_block(std::numeric_limits<double>::infinity(), 0);
  }
  double lost = 0, squares = 0;
  for (size_t i = 0; i < n; ++i) {
    const double value = v[i], difference = value - static_cast<double>(decoded[i]);
    lost += difference * difference;
    squares += value * value;
  }
  error.add_block(lost, squares);
}

}  // namespace

void quantize_reference(Encoded out, const void* in, Type type, size_t n, QuantFormat format,
                        uint64_t seed, uint64_t first_element, const void* minus, float* residual,
                        float beta, QuantError* error) {
  std::vector<float> v(format.block), decoded(format.block);
  const uint64_t bytes = encoded_block_bytes(format);
  for (size_t begin = 0; begin < n; begin += format.block) {
    const size_t count = std::min<size_t>(n - begin, format.block);
    std::fill(v.begin(), v.end(), 0.0f);
    for (size_t i = 0; i < count; ++i) {
      v[i] = load(in, type, begin + i);
      if (minus != nullptr) v[i] = v[i] - load(minus, type, begin + i);
      if (residual != nullptr) v[i] = v[i] + residual[begin + i];
    }
    const size_t block = begin / format.block;
    std::byte* payload = out.payload + block * bytes;
    const BlockScale scale = encode_block(payload, v.data(), format, seed, first_element + begin);
    out.steps[block] = scale.step;
    decode_block(decoded.data(), payload, scale.step, format);
    for (size_t i = 0; residual != nullptr && i < count; ++i) {
      const float lost = v[i] - decoded[i];
      const float next = beta * residual[begin + i] + (1.0f - beta) * lost;
      residual[begin + i] = scale.kind == BlockScale::Kind::nonfinite ? 0.0f : next;
    }
    if (error != nullptr) add_error(*error, scale.kind, v.data(), decoded.data(), format.block);
  }
}

void dequantize_reference(void* out, Type type, ConstEncoded in, size_t n, QuantFormat format,
                          bool add) {
  std::vector<float> decoded(format.block);
  for (size_t begin = 0; begin < n; begin += format.block) {
    const size_t block = begin / format.block;
    decode_block(decoded.data(), in.payload + block * encoded_block_bytes(format), in.steps[block],
                 format);
    for (size_t i = begin; i < std::min<size_t>(n, begin + format.block); ++i) {
      const float value = decoded[i - begin];
      store(out, type, i, add ? load(out, type, i) + value : value);
    }
  }
}

void dequantize_sum_reference(float* out, bool accumulate, const ConstEncoded* in, size_t count,
                              float scale, size_t n, QuantFormat format, ExactSum* squares) {
  constexpr size_t kStretch = kQuantMaxBlock;  // a multiple of every block and of kBlock
  std::vector<std::vector<float>> decoded(count, std::vector<float>(kStretch));
  std::vector<const void*> pointers;
  pointers.reserve(count);
  for (const std::vector<float>& values : decoded) pointers.push_back(values.data());
  for (size_t begin = 0; begin < n; begin += kStretch) {
    const size_t m = std::min(n - begin, kStretch), block = begin / format.block;
    for (size_t k = 0; k < count; ++k) {
      const ConstEncoded at(in[k].payload + block * encoded_block_bytes(format),
                            in[k].steps + block);
      dequantize_reference(decoded[k].data(), Type::f32, at, m, format, false);
    }
    reduce_reference(out + begin, accumulate, pointers.data(), count, Type::f32, scale, m, squares);
  }
}

void dequantize_sum_quantize_reference(Encoded out, const ConstEncoded* in, size_t count,
                                       float scale, size_t n, QuantFormat in_format,
                                       QuantFormat out_format, uint64_t seed,
                                       uint64_t first_element, QuantError* error) {
  constexpr size_t kStretch = kQuantMaxBlock;
  std::vector<float> sum(kStretch);
  std::vector<ConstEncoded> at(in, in + count);
  for (size_t begin = 0; begin < n; begin += kStretch) {
    const size_t m = std::min(n - begin, kStretch);
    dequantize_sum_reference(sum.data(), false, at.data(), count, scale, m, in_format, nullptr);
    quantize_reference(out, sum.data(), Type::f32, m, out_format, seed, first_element + begin,
                       nullptr, nullptr, 0, error);
    for (ConstEncoded& input : at) {
      input.payload += kStretch / in_format.block * encoded_block_bytes(in_format);
      input.steps += kStretch / in_format.block;
    }
    out.payload += kStretch / out_format.block * encoded_block_bytes(out_format);
    out.steps += kStretch / out_format.block;
  }
}

}  // namespace meron::kernels

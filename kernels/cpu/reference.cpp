// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/reference.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/adamw_element.h"
#include "kernels/cpu/half.h"

namespace meron::kernels {
namespace {

float load(const void* array, Type type, size_t i) {
  switch (type) {
    case Type::bf16:
      return f32_from_bf16(static_cast<const uint16_t*>(array)[i]);
    case Type::f16:
      return f32_from_f16(static_cast<const uint16_t*>(array)[i]);
    case Type::f32:
      break;
  }
  return static_cast<const float*>(array)[i];
}

void store(void* array, Type type, size_t i, float value) {
  switch (type) {
    case Type::f32:
      static_cast<float*>(array)[i] = value;
      break;
    case Type::bf16:
      static_cast<uint16_t*>(array)[i] = bf16_from_f32(value);
      break;
    case Type::f16:
      static_cast<uint16_t*>(array)[i] = f16_from_f32(value);
      break;
  }
}

}  // namespace

void adamw_reference(const AdamW& step, float* p, const void* g, Type g_type, float* m, float* v,
                     void* out, Type out_type, size_t n) {
  const AdamWConstants constants(step);
  for (size_t i = 0; i < n; ++i) {
    adamw_element(constants, p[i], load(g, g_type, i), m[i], v[i]);
    if (out != nullptr) store(out, out_type, i, p[i]);
  }
}

void reduce_reference(float* out, bool accumulate, const void* const* in, size_t count, Type type,
                      float scale, size_t n, ExactSum* squares) {
  for (size_t block = 0; block < n; block += kBlock) {
    double lanes[32] = {};
    for (size_t i = block; i < std::min(n, block + kBlock); ++i) {
      size_t k = 0;
      float sum = accumulate ? out[i] : count != 0 ? load(in[k++], type, i) : 0.0f;
      for (; k < count; ++k) sum = sum + load(in[k], type, i);
      out[i] = sum * scale;
      lanes[i % 32] += static_cast<double>(out[i]) * static_cast<double>(out[i]);
    }
    for (size_t half = 16; half != 0; half /= 2) {
      for (size_t j = 0; j < half; ++j) lanes[j] += lanes[j + half];
    }
    if (squares != nullptr) squares->add(lanes[0]);
  }
}

void accumulate_reference(void* dst, Type dst_type, const void* src, Type src_type, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    store(dst, dst_type, i, load(dst, dst_type, i) + load(src, src_type, i));
  }
}

void convert_reference(void* dst, Type dst_type, const void* src, Type src_type, size_t n) {
  if (dst_type == src_type) {
    if (n != 0) std::memmove(dst, src, n * size_of(dst_type));
    return;
  }
  for (size_t i = 0; i < n; ++i) store(dst, dst_type, i, load(src, src_type, i));
}

}  // namespace meron::kernels

// SPDX-License-Identifier: Apache-2.0
#include "naive.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/half.h"

namespace meron::bench {

using kernels::bf16_from_f32;
using kernels::f32_from_bf16;

void naive_quantize(kernels::Encoded out, const uint16_t* in, size_t n,
                    kernels::QuantFormat format) {
  const float qmax = format.bits == 8 ? 127.0f : 7.0f;
  for (size_t begin = 0, b = 0; begin < n; begin += format.block, ++b) {
    float largest = 0;
    for (size_t i = 0; i < format.block; ++i) {
      largest = std::max(largest, std::fabs(f32_from_bf16(in[begin + i])));
    }
    const float inverse = largest > 0 ? qmax / largest : 0;
    out.steps[b] = largest / qmax;
    const auto q = [&](size_t i) {
      const float scaled = std::nearbyint(f32_from_bf16(in[begin + i]) * inverse);
      return static_cast<int>(std::clamp(scaled, -qmax, qmax));
    };
    std::byte* payload = out.payload + begin * format.bits / 8;
    if (format.bits == 8) {
      for (size_t i = 0; i < format.block; ++i) payload[i] = static_cast<std::byte>(q(i));
    } else {
      for (size_t i = 0; i < format.block / 2; ++i) {
        const size_t low = i / 32 * 64 + i % 32;
        payload[i] = static_cast<std::byte>((q(low) & 0xf) | (q(low + 32) << 4));
      }
    }
  }
}

void naive_dequantize(uint16_t* out, kernels::ConstEncoded in, size_t n,
                      kernels::QuantFormat format) {
  for (size_t begin = 0, b = 0; begin < n; begin += format.block, ++b) {
    const float step = in.steps[b];
    const std::byte* payload = in.payload + begin * format.bits / 8;
    const auto put = [&](size_t i, int q) {
      out[begin + i] = bf16_from_f32(static_cast<float>(q) * step);
    };
    if (format.bits == 8) {
      for (size_t i = 0; i < format.block; ++i) put(i, static_cast<int8_t>(payload[i]));
    } else {
      for (size_t i = 0; i < format.block / 2; ++i) {
        const int both = static_cast<int8_t>(payload[i]);
        const size_t low = i / 32 * 64 + i % 32;
        put(low, static_cast<int8_t>(both << 4) >> 4);
        put(low + 32, both >> 4);
      }
    }
  }
}

}  // namespace meron::bench

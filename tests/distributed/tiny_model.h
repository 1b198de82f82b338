// SPDX-License-Identifier: Apache-2.0
// A small network for the twin tests: shapes that divide by nothing, a scalar and an empty param,
// units smaller than the world. Plain loops, so that the same inputs give the same bits everywhere.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace meron::test {

struct TinyParam {
  std::string name;
  std::vector<int64_t> shape;
  size_t count() const {
    size_t n = 1;
    for (const int64_t size : shape) n *= static_cast<size_t>(size);
    return n;
  }
};

struct TinyUnit {
  std::string name;
  std::vector<TinyParam> params;
};

inline constexpr int kIn = 13, kHidden = 67, kOut = 29, kBatch = 3;

inline std::vector<TinyUnit> tiny_units() {
  return {{"in", {{"in.weight", {kIn, kHidden}}, {"in.bias", {kHidden}}, {"in.nothing", {0, 7}}}},
          {"middle", {{"middle.weight", {kHidden, kHidden}}, {"middle.gain", {}}}},
          {"out", {{"out.weight", {kHidden, kOut}}, {"out.bias", {kOut}}}}};
}

inline uint64_t next_random(uint64_t& state) {
  state += 0x9e3779b97f4a7c15ull;
  uint64_t z = state;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  return z ^ z >> 31;
}
inline float random_float(uint64_t& state) {
  return static_cast<float>(static_cast<double>(next_random(state) >> 40) / (1 << 23) - 1.0);
}

inline std::vector<float> initial_values(const TinyParam& param) {
  uint64_t state = 7;
  for (const char c : param.name) state = state * 131 + static_cast<unsigned char>(c);
  std::vector<float> values(param.count());
  for (float& value : values) value = 0.3f * random_float(state);
  return values;
}

// One array per param, in the order of tiny_units().
struct TinyArrays {
  float w1[kIn * kHidden], b1[kHidden], w2[kHidden * kHidden], gain, w3[kHidden * kOut], b3[kOut];
};

// Calls `copy` for each param: its offset in the arrays, its number, and its count of elements.
template <typename Copy>
void for_each_tiny_param(TinyArrays& arrays, const Copy& copy) {
  copy(arrays.w1, 0, kIn * kHidden);
  copy(arrays.b1, 1, kHidden);
  copy(arrays.w2, 3, kHidden * kHidden);
  copy(&arrays.gain, 4, 1);
  copy(arrays.w3, 5, kHidden * kOut);
  copy(arrays.b3, 6, kOut);
}

// Memory of a rank's own, so that no sanitizer has to look at every access: it would take most of a
// test.
#if defined(__GNUC__)
__attribute__((no_sanitize_address, no_sanitize_thread))
#endif
inline float
tiny_arithmetic(uint64_t micro_batch, const TinyArrays& values, TinyArrays& gradients) {
  const auto& [w1, b1, w2, gain, w3, b3] = values;
  uint64_t state = micro_batch * 977 + 5;
  float loss = 0.0f;
  for (int sample = 0; sample < kBatch; ++sample) {
    float x[kIn], target[kOut], h1[kHidden], s2[kHidden], h2[kHidden], y[kOut];
    for (float& each : x) each = random_float(state);
    for (int o = 0; o < kOut; ++o) target[o] = x[o % kIn] * x[(o + 3) % kIn];
    for (int j = 0; j < kHidden; ++j) {
      float sum = b1[j];
      for (int i = 0; i < kIn; ++i) sum += x[i] * w1[i * kHidden + j];
      h1[j] = sum > 0.0f ? sum : 0.1f * sum;
    }
    for (int j = 0; j < kHidden; ++j) {
      float sum = 0.0f;
      for (int i = 0; i < kHidden; ++i) sum += h1[i] * w2[i * kHidden + j];
      s2[j] = sum;
      const float z = sum * (1.0f + gain);
      h2[j] = z > 0.0f ? z : 0.1f * z;
    }
    float dh2[kHidden] = {}, dh1[kHidden] = {};
    for (int o = 0; o < kOut; ++o) {
      float sum = b3[o];
      for (int j = 0; j < kHidden; ++j) sum += h2[j] * w3[j * kOut + o];
      y[o] = sum;
      const float error = y[o] - target[o];
      loss += error * error;
      const float dy = 2.0f * error / (kBatch * kOut);
      gradients.b3[o] += dy;
      for (int j = 0; j < kHidden; ++j) {
        gradients.w3[j * kOut + o] += dy * h2[j];
        dh2[j] += dy * w3[j * kOut + o];
      }
    }
    for (int j = 0; j < kHidden; ++j) {
      const float dz = dh2[j] * (h2[j] > 0.0f ? 1.0f : 0.1f);
      gradients.gain += dz * s2[j];
      const float ds = dz * (1.0f + gain);
      for (int i = 0; i < kHidden; ++i) {
        gradients.w2[i * kHidden + j] += ds * h1[i];
        dh1[i] += ds * w2[i * kHidden + j];
      }
    }
    for (int j = 0; j < kHidden; ++j) {
      const float ds = dh1[j] * (h1[j] > 0.0f ? 1.0f : 0.1f);
      gradients.b1[j] += ds;
      for (int i = 0; i < kIn; ++i) gradients.w1[i * kHidden + j] += ds * x[i];
    }
  }
  return loss / (kBatch * kOut);
}

// values and gradients: one pointer per param, in the order of tiny_units(). Adds to the gradients.
// Returns the loss (mean squared error) of one micro-batch.
inline float tiny_step(uint64_t micro_batch, const std::array<const float*, 7>& values,
                       const std::array<float*, 7>& gradients) {
  TinyArrays own_values, sums;
  for_each_tiny_param(own_values, [&](float* own, size_t param, size_t count) {
    std::copy_n(values[param], count, own);
  });
  for_each_tiny_param(sums, [&](float* own, size_t param, size_t count) {
    std::copy_n(gradients[param], count, own);
  });
  const float loss = tiny_arithmetic(micro_batch, own_values, sums);
  for_each_tiny_param(sums, [&](const float* own, size_t param, size_t count) {
    std::copy_n(own, count, gradients[param]);
  });
  return loss;
}

}  // namespace meron::test

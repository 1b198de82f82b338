// SPDX-License-Identifier: Apache-2.0
// What both programs of this benchmark agree on: their arguments, and the values that prove that
// bytes arrived where they belong. Values are small whole numbers, so that f32 sums are exact.
#pragma once

#include <cstring>

#include "bench/ranks.h"

namespace meron::bench {

struct Arguments {
  Effort effort;
  std::vector<size_t> sizes;
};

// [--quick] BYTES...: sizes of the gathered or full tensor.
inline Arguments read_arguments(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--quick") == 0) {
      arguments.effort = kQuickEffort;
      continue;
    }
    const unsigned long long bytes = std::strtoull(argv[i], nullptr, 10);
    if (bytes == 0 || bytes % 4096 != 0) {
      give_up(std::string("'") + argv[i] + "' is no size: multiples of 4096 bytes are");
    }
    arguments.sizes.push_back(bytes);
  }
  return arguments;
}

inline float parameter_value(uint64_t index, int round) {
  return static_cast<float>((index * 7 + static_cast<uint64_t>(round) * 13) % 1021);
}

inline float gradient_value(uint64_t index, int rank) {
  return static_cast<float>((index * 5 + static_cast<uint64_t>(rank) * 11) % 509);
}

inline void fill_gradient(float* data, size_t count, int rank) {
  for (size_t i = 0; i < count; ++i) data[i] = gradient_value(i, rank);
}

inline void check_gathered(const float* data, size_t count, int round) {
  for (size_t i = 0; i < count; ++i) {
    if (data[i] != parameter_value(i, round)) {
      give_up("all-gather: element " + std::to_string(i) + " is wrong");
    }
  }
}

// `data` is the part of the sum that begins at element `offset`.
inline void check_reduced(const float* data, size_t count, uint64_t offset, int ranks) {
  for (size_t i = 0; i < count; ++i) {
    float sum = 0;
    for (int rank = 0; rank < ranks; ++rank) sum += gradient_value(offset + i, rank);
    if (data[i] != sum) {
      give_up("reduce-scatter: element " + std::to_string(offset + i) + " is wrong");
    }
  }
}

}  // namespace meron::bench

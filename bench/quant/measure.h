// SPDX-License-Identifier: Apache-2.0
// Measurements of the program, and their output.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "bench/report.h"
#include "bench/workers.h"
#include "kernels/cpu/quant.h"

namespace meron::bench {

struct Options {
  size_t elements = size_t{64} << 20;      // of the arrays that are encoded and decoded
  size_t sum_elements = size_t{16} << 20;  // of each of the arrays that are summed
  size_t repeats = 15;
};

inline constexpr uint32_t kQuantBlock = 256;
inline constexpr size_t kTerms = 8;  // arrays in a sum

// One measured operation: `work` processes elements [i, i + n), which are full blocks.
struct Arm {
  std::string key;
  std::string title;
  double bytes;  // read and written per element
  std::function<void(size_t i, size_t n)> work;
  std::vector<double> seconds = {};
};

// Runs all arms in turns over n elements.
void take_turns(Workers& workers, std::vector<Arm>& arms, size_t n, size_t repeats);

// Ratio of the speeds of `arm` and `base`: the median over the turns.
double speedup(const Arm& arm, const Arm& base);

// The ratio of their traffic per second.
inline double traffic_ratio(const Arm& arm, const Arm& base) {
  return speedup(arm, base) * arm.bytes / base.bytes;
}

// Prints all arms beside the first, and returns them for the JSON file.
nlohmann::ordered_json print_arms(const std::vector<Arm>& arms, size_t n);

// Bytes that an element takes when encoded, its share of the step included.
inline double encoded_element(kernels::QuantFormat format) {
  return static_cast<double>(kernels::encoded_bytes(format.block, format)) / format.block;
}

// Each prints its table and adds to the report.
void measure_codec(Workers& workers, const Options& options, Report& report);
void measure_sum(Workers& workers, const Options& options, Report& report);

}  // namespace meron::bench

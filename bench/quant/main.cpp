// SPDX-License-Identifier: Apache-2.0
// bench_quant: see README.md.
#include <fmt/format.h>

#include "bench/kernel_main.h"
#include "measure.h"

namespace meron::bench {

void take_turns(Workers& workers, std::vector<Arm>& arms, size_t n, size_t repeats) {
  for (size_t turn = 0; turn <= repeats; ++turn) {
    for (Arm& arm : arms) {
      const double seconds = workers.run([&](size_t thread) {
        const Slice slice = Slice::of(n, thread, workers.count(), kQuantBlock);
        arm.work(slice.begin, slice.end - slice.begin);
      });
      if (turn != 0) arm.seconds.push_back(seconds);  // the first turn warms up
    }
  }
}

double speedup(const Arm& arm, const Arm& base) {
  std::vector<double> ratios;
  for (size_t r = 0; r < arm.seconds.size(); ++r) {
    ratios.push_back(base.seconds[r] / arm.seconds[r]);
  }
  return median(ratios);
}

nlohmann::ordered_json print_arms(const std::vector<Arm>& arms, size_t n) {
  fmt::print("{:<38}{:>10}{:>10}{:>10}{:>10}\n", "", "B/element", "ms", "GB/s", "x copy");
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Arm& arm : arms) {
    const double seconds = median(arm.seconds);
    const double rate = arm.bytes * static_cast<double>(n) / seconds / 1e9;
    const double relative = traffic_ratio(arm, arms[0]);
    fmt::print("{:<38}{:>10.2f}{:>10.2f}{:>10.1f}{:>10.2f}\n", arm.title, arm.bytes, seconds * 1e3,
               rate, relative);
    rows.push_back({{"name", arm.key},
                    {"bytes_per_element", arm.bytes},
                    {"seconds", seconds},
                    {"gb_per_second", rate},
                    {"traffic_over_copy", relative}});
  }
  fmt::print("\n");
  return rows;
}

}  // namespace meron::bench

int main(int argc, char** argv) {
  using namespace meron::bench;  // NOLINT: a program of that namespace
  KernelProgram program;
  program.name = "quant";
  program.description = "Measures block quantization against what memory allows.";
  program.elements =
      "Elements that are encoded and decoded (default 64 Mi, with --quick 1 Mi); sums take a "
      "quarter of it";
  program.least_elements = 4096;
  program.measure = [](const KernelArguments& arguments, Workers& workers, Report& report) {
    Options options;
    arguments.apply(options);
    options.sum_elements = options.elements / 4;
    measure_codec(workers, options, report);
    measure_sum(workers, options, report);
  };
  return kernel_main(program, argc, argv);
}

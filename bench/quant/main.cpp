// SPDX-License-Identifier: Apache-2.0
// bench_quant: see README.md.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <exception>
#include <string>

#include "kernels/cpu/target.h"
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

namespace {

int run(const Options& options, size_t threads, bool quick, const std::string& json_file) {
  Report report;
  report.json = {{"bench", "quant"}, {"quick", quick}, {"target", kernels::target_name()}};
  Workers workers(threads);
  fmt::print("Instruction set: {}\n\n", kernels::target_name());
  measure_codec(workers, options, report);
  measure_sum(workers, options, report);
  return finish("bench_quant", report, workers, quick, json_file);
}

}  // namespace
}  // namespace meron::bench

int main(int argc, char** argv) {
  using meron::bench::Options;
  Options options;
  std::string json_file;
  size_t elements = 0, threads = meron::bench::Workers::allowed_cpus().size(), repeats = 0;
  bool quick = false;
  CLI::App app(
      "Measures block quantization against what memory allows. Exit status 0: it ran, whether or "
      "not the goals were met.");
  app.add_option("--json", json_file, "Write every number to FILE")->type_name("FILE");
  app.add_option("--elements", elements,
                 "Elements that are encoded and decoded (default 64 Mi, with --quick 1 Mi); sums "
                 "take a quarter of it")
      ->check(CLI::Range(size_t{4096}, size_t{1} << 33));
  app.add_option("--threads", threads, "Threads, pinned to the CPUs this process may use, in order")
      ->check(CLI::Range(size_t{1}, size_t{1024}))
      ->capture_default_str();
  app.add_option("--repeats", repeats, "Turns of each variant (default 15, with --quick 3)")
      ->check(CLI::Range(size_t{1}, size_t{10000}));
  app.add_flag("--quick", quick, "A second's run that only shows that everything works");
  CLI11_PARSE(app, argc, argv);

  if (quick) {
    options.elements = size_t{1} << 20;
    options.repeats = 3;
  }
  if (elements != 0) options.elements = elements;
  options.sum_elements = options.elements / 4;
  if (repeats != 0) options.repeats = repeats;
  try {
    return meron::bench::run(options, threads, quick, json_file);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_quant: {}\n", error.what());
    return 2;
  }
}

// SPDX-License-Identifier: Apache-2.0
// bench_adamw: see README.md.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <exception>
#include <string>

#include "kernels/cpu/target.h"
#include "measure.h"

namespace meron::bench {
namespace {

int run(const Options& options, size_t threads, bool quick, const std::string& json_file) {
  Report report;
  report.json = {{"bench", "adamw"}, {"quick", quick}, {"target", kernels::target_name()}};
  Workers workers(threads);
  measure_step(workers, options, report);
  measure_spacing(workers, options, report);

  return finish("bench_adamw", report, workers, quick, json_file);
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
      "Measures the AdamW step against what memory allows. Exit status 0: it ran, whether "
      "or not the goals were met.");
  app.add_option("--json", json_file, "Write every number to FILE")->type_name("FILE");
  app.add_option("--elements", elements, "Parameters (default 64 Mi, with --quick 1 Mi)")
      ->check(CLI::Range(size_t{1024}, size_t{1} << 33));
  app.add_option("--threads", threads, "Threads, pinned to the CPUs this process may use, in order")
      ->check(CLI::Range(size_t{1}, size_t{1024}))
      ->capture_default_str();
  app.add_option("--repeats", repeats, "Turns of each variant (default 15, with --quick 3)")
      ->check(CLI::Range(size_t{1}, size_t{10000}));
  app.add_flag("--quick", quick, "A second's run that only shows that everything works");
  CLI11_PARSE(app, argc, argv);

  if (quick) {
    options.elements = size_t{1} << 20;
    options.window = size_t{1} << 20;
    options.repeats = 3;
  }
  if (elements != 0) options.elements = elements;
  if (repeats != 0) options.repeats = repeats;
  try {
    return meron::bench::run(options, threads, quick, json_file);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_adamw: {}\n", error.what());
    return 2;
  }
}

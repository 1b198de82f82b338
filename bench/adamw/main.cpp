// SPDX-License-Identifier: Apache-2.0
// bench_adamw: see README.md.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <exception>
#include <fstream>
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

  bool all_met = true;
  nlohmann::ordered_json goals = nlohmann::ordered_json::array();
  for (const Goal& goal : report.goals) {
    fmt::print("{:<30}{:>8.2f}   goal {:.2f}   {}\n", goal.name, goal.value, goal.at_least,
               goal.met() ? "met" : "MISSED");
    goals.push_back({{"name", goal.name},
                     {"value", goal.value},
                     {"goal", goal.at_least},
                     {"passed", goal.met()}});
    all_met = all_met && goal.met();
  }
  if (quick)
    fmt::print("These sizes fit in caches (--quick): the figures show only that it runs.\n");
  if (workers.disturbed() > 0.1) {
    fmt::print(
        "Other programs had the CPUs during {:.0f} % of the runs: do not trust the figures.\n",
        workers.disturbed() * 100);
  }
  report.json["disturbed_runs"] = workers.disturbed();
  report.json["goals"] = goals;
  report.json["passed"] = all_met;
  if (json_file.empty()) return 0;
  std::ofstream file(json_file);
  file << report.json.dump(2) << '\n';
  file.close();
  if (file) return 0;
  fmt::print(stderr, "bench_adamw: cannot write {}: choose a file in a folder that exists\n",
             json_file);
  return 2;
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

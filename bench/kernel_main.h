// SPDX-License-Identifier: Apache-2.0
// The main function of a program that measures kernels in this process: its options, and its end.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <exception>
#include <functional>
#include <string>

#include "bench/report.h"
#include "bench/workers.h"
#include "kernels/cpu/target.h"

namespace meron::bench {

struct KernelArguments {
  size_t elements = 0;  // as next: 0: not given
  size_t repeats = 0;
  bool quick = false;

  // Into a program's own options.
  template <class Options>
  void apply(Options& options) const {
    if (quick) {
      options.elements = size_t{1} << 20;
      options.repeats = 3;
    }
    if (elements != 0) options.elements = elements;
    if (repeats != 0) options.repeats = repeats;
  }
};

struct KernelProgram {
  std::string name;
  std::string description;
  std::string elements;   // what --elements says
  size_t least_elements;  // that it takes
  std::function<void(const KernelArguments&, Workers&, Report&)> measure;
};

inline int kernel_main(const KernelProgram& program, int argc, char** argv) {
  KernelArguments arguments;
  std::string json_file;
  size_t threads = Workers::allowed_cpus().size();
  CLI::App app(program.description + " Exit status 0: it ran, whether or not the goals were met.");
  app.add_option("--json", json_file, "Write every number to FILE")
      ->type_name("FILE")
      ->check(report_file_error);
  app.add_option("--elements", arguments.elements, program.elements)
      ->check(CLI::Range(program.least_elements, size_t{1} << 33));
  app.add_option("--threads", threads, "Threads, pinned to the CPUs this process may use, in order")
      ->check(CLI::Range(size_t{1}, size_t{1024}))
      ->capture_default_str();
  app.add_option("--repeats", arguments.repeats,
                 "Turns of each variant (default 15, with --quick 3)")
      ->check(CLI::Range(size_t{1}, size_t{10000}));
  app.add_flag("--quick", arguments.quick, "A second's run that only shows that everything works");
  CLI11_PARSE(app, argc, argv);
  try {
    Report report;
    report.json = {
        {"bench", program.name}, {"quick", arguments.quick}, {"target", kernels::target_name()}};
    Workers workers(threads);
    fmt::print("Instruction set: {}\n\n", kernels::target_name());
    program.measure(arguments, workers, report);
    return finish("bench_" + program.name, report, workers, arguments.quick, json_file);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_{}: {}\n", program.name, error.what());
    return 2;
  }
}

}  // namespace meron::bench

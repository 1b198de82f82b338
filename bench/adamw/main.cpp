// SPDX-License-Identifier: Apache-2.0
// bench_adamw: see README.md.
#include "bench/kernel_main.h"
#include "measure.h"

int main(int argc, char** argv) {
  using namespace meron::bench;  // NOLINT: a program of that namespace
  KernelProgram program;
  program.name = "adamw";
  program.description = "Measures the AdamW step against what memory allows.";
  program.elements = "Parameters (default 64 Mi, with --quick 1 Mi)";
  program.least_elements = 1024;
  program.measure = [](const KernelArguments& arguments, Workers& workers, Report& report) {
    Options options;
    if (arguments.quick) options.window = size_t{1} << 20;
    arguments.apply(options);
    measure_step(workers, options, report);
    measure_spacing(workers, options, report);
  };
  return kernel_main(program, argc, argv);
}

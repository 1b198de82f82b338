// SPDX-License-Identifier: Apache-2.0
// Measurements of the program, and their output.
#pragma once

#include <cstddef>

#include "bench/report.h"
#include "bench/workers.h"
#include "kernels/cpu/adamw.h"

namespace meron::bench {

struct Options {
  size_t elements = size_t{64} << 20;  // parameters of the step
  size_t window = size_t{32} << 20;    // bytes of each array that the sweep visits per spacing
  size_t repeats = 15;
};

// Step 1000 of a training run with clipping.
inline kernels::AdamW example_step() {
  kernels::AdamW step;
  step.lr = 1e-4;
  step.weight_decay = 0.01;
  step.bias1 = 1.0;
  step.bias2 = 0.632;
  step.grad_scale = 0.5;
  return step;
}

// Bytes that one parameter moves in the f32 step: four arrays read, three written.
inline constexpr double kStepBytes = 28;

// Each prints its table and adds to the report.
void measure_step(Workers& workers, const Options& options, Report& report);
void measure_spacing(Workers& workers, const Options& options, Report& report);

}  // namespace meron::bench

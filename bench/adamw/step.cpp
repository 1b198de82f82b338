// SPDX-License-Identifier: Apache-2.0
// The step against what bounds it and against what it replaces.
#include <fmt/format.h>

#include <cstring>
#include <functional>

#include "bench/memory.h"
#include "kernels/cpu/accumulate.h"
#include "kernels/cpu/adamw.h"
#include "kernels/cpu/reference.h"
#include "measure.h"
#include "stream.h"

namespace meron::bench {
namespace {

using kernels::Type;

struct Arrays {
  explicit Arrays(size_t n) : arena(5 * Arena::room_for(n * 4) + 2 * Arena::room_for(n * 2)) {
    p = arena.place<float>(n);
    g = arena.place<float>(n);
    m = arena.place<float>(n);
    v = arena.place<float>(n);
    g16 = arena.place<uint16_t>(n);
    out16 = arena.place<uint16_t>(n);
    spare = arena.place<float>(n);
  }

  Arena arena;
  float *p, *g, *m, *v, *spare;
  uint16_t *g16, *out16;
};

struct Arm {
  const char* key;
  const char* title;
  double bytes;  // useful traffic per parameter
  std::function<void(size_t begin, size_t n)> work;
  std::vector<double> seconds = {};
};

// The median over the turns of how many times faster `arm` was than `base`.
double speedup(const Arm& arm, const Arm& base) {
  std::vector<double> ratios;
  for (size_t r = 0; r < arm.seconds.size(); ++r) {
    ratios.push_back(base.seconds[r] / arm.seconds[r]);
  }
  return median(ratios);
}

}  // namespace

void measure_step(Workers& workers, const Options& options, Report& report) {
  const size_t n = options.elements;
  const kernels::AdamW step = example_step();
  Arrays a(n);
  workers.run([&](size_t thread) {
    const Slice slice = Slice::of(n, thread, workers.count());
    for (size_t i = slice.begin; i < slice.end; ++i) {
      a.p[i] = 1.0f;
      a.g[i] = i % 2 == 0 ? 0.01f : -0.02f;
      a.v[i] = 1e-4f;
    }
    kernels::convert(a.g16 + slice.begin, Type::bf16, a.g + slice.begin, Type::f32,
                     slice.end - slice.begin);
  });

  std::vector<Arm> arms = {
      {"stream", "same streams, no arithmetic", kStepBytes,
       [&](size_t i, size_t k) { stream(a.p + i, a.g + i, a.m + i, a.v + i, k); }},
      {"adamw", "adamw f32", kStepBytes,
       [&](size_t i, size_t k) {
         kernels::adamw(step, a.p + i, a.g + i, Type::f32, a.m + i, a.v + i, nullptr, Type::f32, k);
       }},
      {"scalar", "scalar reference", kStepBytes,
       [&](size_t i, size_t k) {
         kernels::adamw_reference(step, a.p + i, a.g + i, Type::f32, a.m + i, a.v + i, nullptr,
                                  Type::f32, k);
       }},
      {"memcpy", "memcpy of one array", 8,
       [&](size_t i, size_t k) { std::memcpy(a.spare + i, a.p + i, k * 4); }},
      {"one_pass", "bf16 gradients and output, one pass", kStepBytes,
       [&](size_t i, size_t k) {
         kernels::adamw(step, a.p + i, a.g16 + i, Type::bf16, a.m + i, a.v + i, a.out16 + i,
                        Type::bf16, k);
       }},
      {"three_passes", "the same in three passes", kStepBytes,
       [&](size_t i, size_t k) {
         kernels::convert(a.g + i, Type::f32, a.g16 + i, Type::bf16, k);
         kernels::adamw(step, a.p + i, a.g + i, Type::f32, a.m + i, a.v + i, nullptr, Type::f32, k);
         kernels::convert(a.out16 + i, Type::bf16, a.p + i, Type::f32, k);
       }},
  };

  for (size_t turn = 0; turn <= options.repeats; ++turn) {
    for (Arm& arm : arms) {
      const double seconds = workers.run([&](size_t thread) {
        const Slice slice = Slice::of(n, thread, workers.count());
        arm.work(slice.begin, slice.end - slice.begin);
      });
      if (turn != 0) arm.seconds.push_back(seconds);  // the first turn warms up
    }
  }

  fmt::print("AdamW step: {:.1f}M parameters, {} threads, medians of {} turns\n\n",
             static_cast<double>(n) / 1e6, workers.count(), options.repeats);
  fmt::print("{:<38}{:>10}{:>10}{:>13}\n", "", "ms", "GB/s", "x stream");
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Arm& arm : arms) {
    const double seconds = median(arm.seconds);
    const double rate = arm.bytes * static_cast<double>(n) / seconds / 1e9;
    const double relative = speedup(arm, arms[0]) * arm.bytes / kStepBytes;
    fmt::print("{:<38}{:>10.2f}{:>10.1f}{:>13.2f}\n", arm.title, seconds * 1e3, rate, relative);
    rows.push_back({{"name", arm.key},
                    {"bytes_per_parameter", arm.bytes},
                    {"seconds", seconds},
                    {"gb_per_second", rate},
                    {"rate_over_stream", relative}});
  }
  fmt::print(
      "GB/s counts what is read and written usefully, 28 bytes per parameter of a step.\n\n");

  const Arm &no_math = arms[0], &adamw = arms[1], &scalar = arms[2], &copy = arms[3];
  const Arm &one_pass = arms[4], &three = arms[5];
  const double over_copy = speedup(adamw, copy) * kStepBytes / copy.bytes;
  fmt::print("adamw f32 over the scalar reference: {:.1f}x; its traffic over memcpy's: {:.2f}x\n\n",
             speedup(adamw, scalar), over_copy);
  report.json["step"] = {{"elements", n},
                         {"threads", workers.count()},
                         {"turns", options.repeats},
                         {"variants", rows},
                         {"adamw_over_scalar", speedup(adamw, scalar)},
                         {"adamw_over_memcpy_traffic", over_copy}};
  report.goals.push_back({"adamw_over_stream", speedup(adamw, no_math), 0.95});
  report.goals.push_back({"one_pass_over_three_passes", speedup(one_pass, three), 1.5});
}

}  // namespace meron::bench

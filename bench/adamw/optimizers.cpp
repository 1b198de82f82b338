// SPDX-License-Identifier: Apache-2.0
// The optimizers' steps for run.py: a shared library with arrays and pinned threads of its own, so
// that they take turns with other programs' steps in one process.
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <exception>

#include "bench/memory.h"
#include "bench/workers.h"
#include "kernels/cpu/accumulate.h"
#include "kernels/cpu/target.h"
#include "kernels/cpu/update.h"

#define MERON_BENCH_EXPORT extern "C" __attribute__((visibility("default")))

namespace meron::bench {
namespace {

using kernels::Rule;
using kernels::StateType;
using kernels::Type;

class Optimizers {
 public:
  // Gradients are those of run.py: 0.01 at even elements and -0.02 at odd ones.
  Optimizers(size_t n, size_t threads)
      : n_(n),
        arena_(4 * Arena::room_for(n * 4) + 4 * Arena::room_for(n * 2) + 2 * Arena::room_for(n) +
               2 * Arena::room_for(blocks(n) * 4)),
        workers_(threads) {
    p_ = arena_.place<float>(n);
    g_ = arena_.place<float>(n);
    for (void*& state : f32_) state = arena_.place<float>(n);
    for (void*& state : bf16_) state = arena_.place<uint16_t>(n);
    for (void*& state : codes_) state = arena_.place<uint8_t>(n);
    for (float*& scales : scales_) scales = arena_.place<float>(blocks(n));
    g16_ = arena_.place<uint16_t>(n);
    out16_ = arena_.place<uint16_t>(n);
    reset();
  }

  // Step t of a rule on all elements; the seconds that it took. Unless `once`, it is repeated where
  // other programs had the CPUs.
  double step(Rule rule, StateType type, bool half, int t, bool once) {
    kernels::UpdateStep step;
    step.rule = rule;
    step.lr = 1e-4;
    step.beta2 = rule == Rule::lion ? 0.99 : 0.999;
    step.weight_decay = 0.01;
    step.bias1 = 1.0 - std::pow(step.beta1, t);
    step.bias2 = 1.0 - std::pow(step.beta2, t);
    step.first_step = t == 1;
    step.seed = static_cast<uint64_t>(t);
    const auto work = [&, step](size_t thread) {
      const Slice slice = Slice::of(n_, thread, workers_.count());
      const size_t i = slice.begin, n = slice.end - slice.begin;
      const void* g = half ? static_cast<const void*>(g16_ + i) : g_ + i;
      kernels::update(step, p_ + i, g, half ? Type::bf16 : Type::f32, states(type, i),
                      half ? out16_ + i : nullptr, Type::bf16, n, i);
    };
    return once ? workers_.run(work, 1) : workers_.run(work);
  }

  // Parameters of 1 and states of 0.
  void reset() {
    workers_.run([&](size_t thread) {
      const Slice slice = Slice::of(n_, thread, workers_.count());
      for (size_t i = slice.begin; i < slice.end; ++i) {
        p_[i] = 1.0f;
        g_[i] = i % 2 == 0 ? 0.01f : -0.02f;
      }
      const size_t n = slice.end - slice.begin;
      kernels::convert(g16_ + slice.begin, Type::bf16, g_ + slice.begin, Type::f32, n);
      for (const StateType type : {StateType::f32, StateType::bf16, StateType::int8}) {
        const kernels::States from = states(type, slice.begin);
        for (size_t k = 0; k < 2; ++k) {
          std::memset(from.data[k], 0, kernels::state_bytes(type, n));
          if (type == StateType::int8) std::memset(from.scales[k], 0, blocks(n) * 4);
        }
      }
    });
  }

  float param(size_t i) const { return p_[i]; }
  double disturbed() const { return workers_.disturbed(); }

 private:
  static size_t blocks(size_t n) { return kernels::scale_count(StateType::int8, n); }

  // From element i on, a block's first.
  kernels::States states(StateType type, size_t i) const {
    kernels::States result;
    result.type = type;
    void* const* data = type == StateType::f32 ? f32_ : type == StateType::bf16 ? bf16_ : codes_;
    for (size_t k = 0; k < 2; ++k) {
      result.data[k] = static_cast<std::byte*>(data[k]) + kernels::state_bytes(type, i);
      if (type == StateType::int8) result.scales[k] = scales_[k] + i / kernels::kBlock;
    }
    return result;
  }

  size_t n_;
  Arena arena_;
  Workers workers_;
  float *p_, *g_, *scales_[2];
  uint16_t *g16_, *out16_;
  void *f32_[2], *bf16_[2], *codes_[2];
};

}  // namespace
}  // namespace meron::bench

using meron::bench::Optimizers;

// For the rest of the process. Null where memory or threads are missing; the reason is printed.
MERON_BENCH_EXPORT Optimizers* bench_optimizers_open(size_t n, size_t threads) {
  try {
    return new Optimizers(n, threads);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_adamw: {}\n", error.what());
    return nullptr;
  }
}

MERON_BENCH_EXPORT void bench_optimizers_reset(Optimizers* optimizers) {
  optimizers->reset();
}

MERON_BENCH_EXPORT double bench_optimizers_step(Optimizers* optimizers, int32_t rule, int32_t state,
                                                int32_t half, int32_t t, int32_t once) {
  return optimizers->step(static_cast<meron::kernels::Rule>(rule),
                          static_cast<meron::kernels::StateType>(state), half != 0, t, once != 0);
}

MERON_BENCH_EXPORT float bench_optimizers_param(Optimizers* optimizers, size_t i) {
  return optimizers->param(i);
}

MERON_BENCH_EXPORT double bench_optimizers_disturbed(Optimizers* optimizers) {
  return optimizers->disturbed();
}

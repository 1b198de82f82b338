// SPDX-License-Identifier: Apache-2.0
// Optimizer steps. A warp updates a tile, which is a block of 8-bit states, and then another one.
#include "kernels/cpu/update_element.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/tasks.h"
#include "kernels/cuda/tile.cuh"

namespace meron::cuda {
namespace {

using kernels::AverageCode;
using kernels::BlockRange;
using kernels::Rule;
using kernels::SquareCode;
using kernels::StateKind;
using kernels::UpdateConstants;

using UpdateTasks = Tasks<UpdateTask, kUpdateTasks>;

struct Numbers {
  UpdateConstants constants;
  Rule rule;
  uint32_t states;  // that the rule keeps
  Type g_type, out_type;
};

// AdamW is compiled for itself; other rules are chosen per element.
template <bool kAdamW>
MERON_DEVICE void step_element(const Numbers& numbers, const UpdateConstants& c, float& p, float g,
                               float& s0, float& s1) {
  if constexpr (kAdamW) return kernels::adamw_element(c, p, g, s0, s1);
  if (numbers.rule == Rule::adamw) __builtin_unreachable();
  kernels::step_element(numbers.rule, numbers.states, c, p, g, s0, s1);
}

// The keys of a tile's random bits: element numbers may pass a multiple of 2^32 within it.
struct Keys {
  uint64_t seed = 0, first = 0, next = 0;
  uint32_t upper = 0;
  bool known = false;

  MERON_DEVICE void prepare(uint64_t task_seed, uint64_t number) {
    const auto at = static_cast<uint32_t>(number >> 32);
    if (known && seed == task_seed && upper == at) return;
    known = true;
    seed = task_seed;
    upper = at;
    first = kernels::quant_key(seed, upper);
    next = kernels::quant_key(seed, upper + 1);
  }
  // Of the element that is i after the one with this number, as state_random().
  MERON_DEVICE uint32_t random(uint64_t number, unsigned i) const {
    const auto begin = static_cast<uint32_t>(number), lower = begin + i;
    return kernels::quant_hash(lower < begin ? next : first, lower);
  }
};

template <StateType kType, bool kWhole>
MERON_DEVICE RawQuad load_state(const void* state, uint64_t i, uint64_t n) {
  if constexpr (kType == StateType::int8) {
    return {{load_bytes<kWhole>(state, i, n), 0, 0, 0}};
  } else {
    return load_raw<kWhole>(state, kType == StateType::f32 ? Type::f32 : Type::bf16, i, n);
  }
}

template <class Code>
MERON_DEVICE Quad decode(const RawQuad& raw, const Code& code) {
  Quad quad;
#pragma unroll
  for (unsigned c = 0; c < 4; ++c) {
    quad.v[c] = code.decode(static_cast<uint8_t>(raw.word[0] >> (8 * c)));
  }
  return quad;
}

// `word`: that of the block, with 8-bit states.
template <StateType kType>
MERON_DEVICE Quad widen_state(const RawQuad& raw, StateKind kind, float word) {
  if constexpr (kType != StateType::int8) {
    return widen(raw, kType == StateType::f32 ? Type::f32 : Type::bf16);
  } else {
    if (kind == StateKind::average) return decode(raw, AverageCode(word));
    return decode(raw, SquareCode(word));
  }
}

// The range of a block. Each lane has a share of it.
template <bool kWhole>
MERON_DEVICE BlockRange range_of_warp(const Share& state, uint64_t at, uint64_t n) {
  BlockRange range;
#pragma unroll
  for (unsigned h = 0; h < 2; ++h) {
#pragma unroll
    for (unsigned c = 0; c < 4; ++c) {
      if (kWhole || at + h * 32 + c < n) range.include(state.half[h].v[c]);
    }
  }
  return {max_of_warp(range.largest), ~max_of_warp(~range.least)};
}

// Stores a block of 8-bit states. All lanes have read its word when the first writes it: they have
// met for its range.
template <bool kWhole, class Code>
MERON_DEVICE void store_block(const UpdateTask& task, size_t which, uint64_t begin,
                              const Share& state, const Code& code, uint32_t cut,
                              const uint32_t (&random)[2][4], unsigned lane) {
  if (lane == 0) task.scales[which][begin / kTile] = code.word();
#pragma unroll
  for (unsigned h = 0; h < 2; ++h) {
    uint32_t codes[4];
#pragma unroll
    for (unsigned c = 0; c < 4; ++c) {
      codes[c] = code.encode(state.half[h].v[c], kernels::below_cut(random[h][c], which, cut));
    }
    store_bytes<kWhole>(task.states[which], begin + quad_of(lane) + h * 32, task.n,
                        join_bytes(codes[0], codes[1], codes[2], codes[3]));
  }
}

template <bool kWhole>
MERON_DEVICE void store_blocks(const UpdateTask& task, const StateKind (&kinds)[2], uint32_t states,
                               uint64_t begin, const Share (&state)[2],
                               const uint32_t (&random)[2][4], unsigned lane) {
  const uint64_t at = begin + quad_of(lane);
  uint32_t format = 0;
  if (states > 1) {
    const SquareCode squares(range_of_warp<kWhole>(state[1], at, task.n));
    store_block<kWhole>(task, 1, begin, state[1], squares, squares.shift, random, lane);
    format = AverageCode::format_beside(squares);
  }
  if (states == 0) return;
  const BlockRange range = range_of_warp<kWhole>(state[0], at, task.n);
  if (kinds[0] == StateKind::average) {
    const AverageCode code(range, format);
    store_block<kWhole>(task, 0, begin, state[0], code, code.cut, random, lane);
  } else {
    const SquareCode code(range);
    store_block<kWhole>(task, 0, begin, state[0], code, code.shift, random, lane);
  }
}

// Stores state `which` of a tile, in f32 or bf16.
template <StateType kType, bool kWhole>
MERON_DEVICE void store_state(const UpdateTask& task, size_t which, uint64_t begin,
                              const Share& state, const uint32_t (&random)[2][4], unsigned lane) {
  const uint64_t at = begin + quad_of(lane), n = task.n;
  void* to = task.states[which];
#pragma unroll
  for (unsigned h = 0; h < 2; ++h) {
    if constexpr (kType == StateType::f32) {
      store_raw<kWhole>(to, Type::f32, at + h * 32, n, narrow(state.half[h], Type::f32));
    } else {
      uint32_t bits[4];
#pragma unroll
      for (unsigned c = 0; c < 4; ++c) {
        const uint32_t below = kernels::below_cut(random[h][c], which, kernels::kBf16Cut);
        bits[c] = kernels::bf16_at_random(state.half[h].v[c], below);
      }
      store_raw<kWhole>(to, Type::bf16, at + h * 32, n,
                        {{bits[0] | bits[1] << 16, bits[2] | bits[3] << 16, 0, 0}});
    }
  }
}

template <bool kAdamW, StateType kType, bool kWhole>
MERON_DEVICE void update_tile(const UpdateTask& task, const Numbers& numbers,
                              const UpdateConstants& c, uint64_t begin, Keys& keys, unsigned lane) {
  const uint64_t at = begin + quad_of(lane), n = task.n;
  const uint32_t states = kAdamW ? 2 : numbers.states;
  RawQuad p[2], g[2], s[2][2] = {};
  float word[2] = {};
#pragma unroll
  for (unsigned h = 0; h < 2; ++h) {
    p[h] = load_raw<kWhole>(task.p, Type::f32, at + h * 32, n);
    g[h] = load_raw<kWhole>(task.g, numbers.g_type, at + h * 32, n);
  }
#pragma unroll
  for (unsigned k = 0; k < 2; ++k) {
    if (k >= states) continue;
#pragma unroll
    for (unsigned h = 0; h < 2; ++h) {
      s[k][h] = load_state<kType, kWhole>(task.states[k], at + h * 32, n);
    }
    if constexpr (kType == StateType::int8) word[k] = task.scales[k][begin / kTile];
  }

  const StateKind kinds[2] = {kAdamW ? StateKind::average : kernels::state_kind(numbers.rule, 0),
                              StateKind::square};
  uint32_t random[2][4] = {};
  if constexpr (kType != StateType::f32) {
    const uint64_t number = task.first + begin;
    keys.prepare(task.seed, number);
#pragma unroll
    for (unsigned h = 0; h < 2; ++h) {
#pragma unroll
      for (unsigned c4 = 0; c4 < 4; ++c4) {
        random[h][c4] = keys.random(number, quad_of(lane) + h * 32 + c4);
      }
    }
  }

  Share state[2];
#pragma unroll
  for (unsigned h = 0; h < 2; ++h) {
    Quad value = widen(p[h], Type::f32);
    const Quad gradient = widen(g[h], numbers.g_type);
#pragma unroll
    for (unsigned k = 0; k < 2; ++k) {
      state[k].half[h] = widen_state<kType>(s[k][h], kinds[k], word[k]);
    }
#pragma unroll
    for (unsigned c4 = 0; c4 < 4; ++c4) {
      step_element<kAdamW>(numbers, c, value.v[c4], gradient.v[c4], state[0].half[h].v[c4],
                           state[1].half[h].v[c4]);
    }
    store_raw<kWhole>(task.p, Type::f32, at + h * 32, n, narrow(value, Type::f32));
    if (task.out != nullptr) {
      store_raw<kWhole>(task.out, numbers.out_type, at + h * 32, n,
                        narrow(value, numbers.out_type));
    }
  }
  if constexpr (kType == StateType::int8) {
    store_blocks<kWhole>(task, kinds, states, begin, state, random, lane);
  } else {
#pragma unroll
    for (unsigned k = 0; k < 2; ++k) {
      if (k < states) store_state<kType, kWhole>(task, k, begin, state[k], random, lane);
    }
  }
}

template <StateType kType>
MERON_DEVICE bool all_aligned(const UpdateTask& task, Type g_type, Type out_type) {
  constexpr unsigned kState = kType == StateType::f32 ? 16 : kType == StateType::bf16 ? 8 : 4;
  return aligned(task.p, Type::f32) && aligned(task.g, g_type) && aligned(task.out, out_type) &&
         aligned(task.states[0], kState) && aligned(task.states[1], kState);
}

template <bool kAdamW, StateType kType>
MERON_KERNEL_RESIDENT(kType == StateType::f32 ? 3 : 2)
update_kernel(MERON_PARAMETER UpdateTasks tasks, MERON_PARAMETER Numbers numbers,
              const StepScale* scale) {
  UpdateConstants constants = numbers.constants;
  if (scale != nullptr) {
    if (scale->skip != 0) return;
    constants.grad_scale = scale->grad_scale;
  }
  const unsigned lane = lane_index();
  Keys keys;
  uint32_t t = 0;
  for (uint32_t w = block_index() * kWarps + warp_index(); w < tasks.pieces();
       w += block_count() * kWarps) {
    while (w >= tasks.first_piece[t + 1]) ++t;
    const UpdateTask& task = tasks.task[t];
    const uint64_t begin = uint64_t{w - tasks.first_piece[t]} * kTile;
    if (begin + kTile <= task.n && all_aligned<kType>(task, numbers.g_type, numbers.out_type)) {
      update_tile<kAdamW, kType, true>(task, numbers, constants, begin, keys, lane);
    } else {
      update_tile<kAdamW, kType, false>(task, numbers, constants, begin, keys, lane);
    }
  }
}

template <StateType kType>
cudaError_t launch_update(const UpdateTasks& tasks, const Numbers& numbers, const StepScale* scale,
                          cudaStream_t stream) {
  const uint64_t blocks = (tasks.pieces() + kWarps - 1) / kWarps;
  if (numbers.rule == Rule::adamw) {
    return launch<update_kernel<true, kType>>(blocks, stream, tasks, numbers, scale);
  }
  return launch<update_kernel<false, kType>>(blocks, stream, tasks, numbers, scale);
}

}  // namespace

cudaError_t update(const UpdateStep& step, const UpdateTask* tasks, size_t count, Type g_type,
                   StateType states, Type out_type, const StepScale* scale, cudaStream_t stream) {
  const Numbers numbers{UpdateConstants(step), step.rule,
                        static_cast<uint32_t>(kernels::state_count(step.rule, step.beta1)), g_type,
                        out_type};
  return for_tasks<kUpdateTasks>(tasks, count, kTile, [&](const UpdateTasks& some) {
    switch (states) {
      case StateType::f32:
        return launch_update<StateType::f32>(some, numbers, scale, stream);
      case StateType::bf16:
        return launch_update<StateType::bf16>(some, numbers, scale, stream);
      case StateType::int8:
        return launch_update<StateType::int8>(some, numbers, scale, stream);
    }
    return cudaErrorInvalidValue;
  });
}

}  // namespace meron::cuda

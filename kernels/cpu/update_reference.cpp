// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/update_reference.h"

#include <algorithm>
#include <vector>

#include "kernels/cpu/reference.h"
#include "kernels/cpu/update_element.h"

namespace meron::kernels {
namespace {

// A block of new states, from f32 as the step left them.
template <StateKind kKind>
void store_block(uint8_t* codes, float* scale, const float* from, size_t which,
                 const uint32_t* random, size_t n) {
  uint32_t largest = 0;
  for (size_t i = 0; i < n; ++i) {
    largest = std::max(largest, std::bit_cast<uint32_t>(from[i]) & 0x7fffffffu);
  }
  const CodeScale made(largest);
  *scale = made.scale;
  for (size_t i = 0; i < n; ++i) {
    codes[i] = made.finite ? Code<kKind>::encode(from[i], made.inverse,
                                                 below_cut(random[i], which, kCodeCut))
                           : uint8_t{0};
  }
}

void store_states(const States& states, size_t which, StateKind kind, size_t begin,
                  const float* from, const uint32_t* random, size_t n) {
  if (states.type == StateType::f32) {
    return std::copy_n(from, n, static_cast<float*>(states.data[which]) + begin), void();
  }
  if (states.type == StateType::bf16) {
    auto* to = static_cast<uint16_t*>(states.data[which]) + begin;
    for (size_t i = 0; i < n; ++i)
      to[i] = bf16_at_random(from[i], below_cut(random[i], which, kBf16Cut));
    return;
  }
  auto* codes = static_cast<uint8_t*>(states.data[which]) + begin;
  float* scale = states.scales[which] + begin / kBlock;
  if (kind == StateKind::average) {
    store_block<StateKind::average>(codes, scale, from, which, random, n);
  } else {
    store_block<StateKind::square>(codes, scale, from, which, random, n);
  }
}

const void* state_at(const States& states, size_t which, size_t begin) {
  return static_cast<const char*>(states.data[which]) + state_bytes(states.type, begin);
}

}  // namespace

void update_reference(const UpdateStep& step, float* p, const void* g, Type g_type,
                      const States& states, void* out, Type out_type, size_t n, uint64_t first) {
  const UpdateConstants constants(step);
  const size_t count = state_count(step.rule, step.beta1);
  for (size_t begin = 0; begin < n; begin += kBlock) {
    const size_t size = std::min(kBlock, n - begin);
    float state[2][kBlock] = {};
    float gradient[kBlock];
    uint32_t random[kBlock];
    convert_reference(gradient, Type::f32, static_cast<const char*>(g) + begin * size_of(g_type),
                      g_type, size);
    for (size_t k = 0; k < count; ++k) {
      decode_states(states.type, state_kind(step.rule, k), state[k], state_at(states, k, begin),
                    states.type == StateType::int8 ? states.scales[k] + begin / kBlock : nullptr,
                    size);
    }
    for (size_t i = 0; i < size; ++i) {
      random[i] = state_random(step.seed, first + begin + i);
      step_element(step.rule, state_count(step.rule, step.beta1), constants, p[begin + i],
                   gradient[i], state[0][i], state[1][i]);
    }
    for (size_t k = 0; k < count; ++k) {
      store_states(states, k, state_kind(step.rule, k), begin, state[k], random, size);
    }
    if (out != nullptr) {
      convert_reference(static_cast<char*>(out) + begin * size_of(out_type), out_type, p + begin,
                        Type::f32, size);
    }
  }
}

void store_states_reference(const UpdateStep& step, const States& states, const float* const* from,
                            size_t n, uint64_t first) {
  uint32_t random[kBlock];
  for (size_t i = 0; i < n; ++i) random[i] = state_random(step.seed, first + i);
  for (size_t k = 0; k < state_count(step.rule, step.beta1); ++k) {
    store_states(states, k, state_kind(step.rule, k), 0, from[k], random, n);
  }
}

}  // namespace meron::kernels

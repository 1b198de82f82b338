// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/update_reference.h"

#include <algorithm>
#include <vector>

#include "kernels/cpu/reference.h"
#include "kernels/cpu/update_element.h"

namespace meron::kernels {
namespace {

BlockRange range_of(const float* from, size_t n) {
  BlockRange range;
  for (size_t i = 0; i < n; ++i) range.include(from[i]);
  return range;
}

template <class Code>
void store_block(const Code& code, uint32_t cut, const States& states, size_t which, size_t begin,
                 const float* from, const uint32_t* random, size_t n) {
  auto* codes = static_cast<uint8_t*>(states.data[which]) + begin;
  states.scales[which][begin / kBlock] = code.word();
  for (size_t i = 0; i < n; ++i) codes[i] = code.encode(from[i], below_cut(random[i], which, cut));
}

// The new states of elements [begin, begin + n), which are a block with 8 bits.
void store_states(const UpdateStep& step, const States& states, size_t begin,
                  const float* const* from, const uint32_t* random, size_t n) {
  const size_t count = state_count(step.rule, step.beta1);
  for (size_t k = 0; k < count; ++k) {
    const float* const values = from[k];
    if (states.type == StateType::f32) {
      std::copy_n(values, n, static_cast<float*>(states.data[k]) + begin);
    } else if (states.type == StateType::bf16) {
      auto* to = static_cast<uint16_t*>(states.data[k]) + begin;
      for (size_t i = 0; i < n; ++i) {
        to[i] = bf16_at_random(values[i], below_cut(random[i], k, kBf16Cut));
      }
    } else if (state_kind(step.rule, k) == StateKind::square) {
      const SquareCode code(range_of(values, n));
      store_block(code, code.shift, states, k, begin, values, random, n);
    } else {
      const uint32_t format =
          count > 1 ? AverageCode::format_beside(SquareCode(range_of(from[1], n))) : 0;
      const AverageCode code(range_of(values, n), format);
      store_block(code, code.cut, states, k, begin, values, random, n);
    }
  }
}

const void* state_at(const States& states, size_t which, size_t begin) {
  return static_cast<const char*>(states.data[which]) + state_bytes(states.type, begin);
}

}  // namespace

Largest update_reference(const UpdateStep& step, float* p, const void* g, Type g_type,
                         const States& states, void* out, Type out_type, size_t n, uint64_t first) {
  const UpdateConstants constants(step);
  const size_t count = state_count(step.rule, step.beta1);
  Largest largest;
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
      if (out != nullptr) largest.value = std::max(largest.value, magnitude_of(p[begin + i]));
      if (count == 0 || step.rule == Rule::lion) continue;
      largest.state = std::max(largest.state, magnitude_of(state[count - 1][i]));
    }
    const float* const from[2] = {state[0], state[1]};
    store_states(step, states, begin, from, random, size);
    if (out != nullptr) {
      convert_reference(static_cast<char*>(out) + begin * size_of(out_type), out_type, p + begin,
                        Type::f32, size);
    }
  }
  return largest;
}

void store_states_reference(const UpdateStep& step, const States& states, const float* const* from,
                            size_t n, uint64_t first) {
  uint32_t random[kBlock];
  for (size_t i = 0; i < n; ++i) random[i] = state_random(step.seed, first + i);
  store_states(step, states, 0, from, random, n);
}

}  // namespace meron::kernels

// SPDX-License-Identifier: Apache-2.0
// A range is worked on in tiles that stay in the innermost cache: one pass over memory for every
// combination of types, while only rule and state type make loops of their own. Gradients that are
// not f32 are widened into a tile, and copies of p are made from one. (AdamW with f32 states, the
// most frequent case, has a loop for every type: adamw.cpp.)
#include "kernels/cpu/update.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/copy.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/update.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/state_codec-inl.h"
#include "kernels/cpu/update_rules-inl.h"

HWY_BEFORE_NAMESPACE();
namespace meron::kernels::HWY_NAMESPACE {

// A block of 8-bit states is a tile.
constexpr size_t kTile = kBlock;

// Arrays that a tile's loop reads and writes.
struct Tile {
  const float* p;
  float* new_p;  // p, or elsewhere
  const float* g;
  void* states[2];
  float* scales[2];
  size_t n;      // full vectors
  uint64_t key;  // quant_key() of the seed and the first element's upper 32 bits
  uint32_t lower;
};

template <class Rule>
constexpr bool kTracksSquares = Rule::kKinds[Rule::kStates > 1 ? 1 : 0] == StateKind::square;

// Of a rule's last state, which Largest::state is about. The sign bit of a square is not set.
template <class Rule>
HWY_INLINE void note_largest(F32Vec state, U32Vec& largest) {
  if constexpr (kTracksSquares<Rule>) {
    largest = hn::Max(largest, hn::BitCast(U32Tag(), state));
  } else if constexpr (Rule::kStates > 0 && !hwy::IsSame<Rule, LionRule>()) {
    largest = hn::Max(largest, magnitude_bits(state));
  }
}

// Both loops return Largest::state.
template <class Rule, class State>
HWY_NOINLINE uint32_t update_tile(const UpdateConstants& constants, const Tile& t) {
  const UpdateConstants c = constants;  // which no store can change
  const F32Tag d;
  const size_t lanes = hn::Lanes(d);
  auto* state0 = static_cast<typename State::Lane*>(t.states[0]);
  auto* state1 = static_cast<typename State::Lane*>(t.states[1]);
  const size_t n = t.n;
  U32Vec numbers = numbers_from(t.lower);
  const U32Vec step = hn::Set(U32Tag(), static_cast<uint32_t>(lanes));
  const uint64_t key = t.key;
  U32Vec largest_state = hn::Zero(U32Tag());
  for (size_t i = 0; i < n; i += lanes) {
    F32Vec p = hn::LoadU(d, t.p + i), s0 = hn::Zero(d), s1 = hn::Zero(d);
    if constexpr (Rule::kStates > 0) s0 = State::load(state0 + i);
    if constexpr (Rule::kStates > 1) s1 = State::load(state1 + i);
    Rule::step(c, p, hn::LoadU(d, t.g + i), s0, s1);
    note_largest<Rule>(Rule::kStates > 1 ? s1 : s0, largest_state);
    U32Vec random = hn::Zero(U32Tag());
    if constexpr (Rule::kStates > 0 && State::kRandom) {
      random = random_bits(key, numbers);
      numbers = hn::Add(numbers, step);
    }
    if constexpr (Rule::kStates > 0) State::template store<0>(s0, random, state0 + i);
    if constexpr (Rule::kStates > 1) State::template store<1>(s1, random, state1 + i);
    hn::StoreU(p, d, t.new_p + i);
  }
  return hn::GetLane(hn::MaxOfLanes(U32Tag(), largest_state));
}

template <StateKind kKind>
using CodeOf = std::conditional_t<kKind == StateKind::average, AverageCode, SquareCode>;

// The code of a rule's only state.
template <class Code>
Code code_for(const BlockRange& range) {
  if constexpr (std::is_same_v<Code, AverageCode>) return AverageCode(range, 0);
  if constexpr (std::is_same_v<Code, SquareCode>) return SquareCode(range);
}

// Of a block whose codes are stored. That it is not finite is seen after the loop, in which a
// branch would cost more.
template <class Code>
void store_word(const Code& code, float* word, uint8_t* codes, size_t n) {
  *word = code.word();
  if (!code.finite()) std::memset(codes, code.encode(0.0f, 0), n);
}

// The same with 8-bit states: all new values first, for the format, then their codes.
template <class Rule>
HWY_NOINLINE uint32_t update_block(const UpdateConstants& constants, const Tile& t) {
  constexpr bool kTwo = Rule::kStates > 1;
  constexpr StateKind kKind0 = Rule::kKinds[0], kKind1 = Rule::kKinds[1];
  const UpdateConstants c = constants;
  const F32Tag d;
  const size_t lanes = hn::Lanes(d);
  auto* codes0 = static_cast<uint8_t*>(t.states[0]);
  auto* codes1 = static_cast<uint8_t*>(t.states[1]);
  const float *old_p = t.p, *g = t.g;  // and these no store to bytes
  float* new_p = t.new_p;
  const size_t n = t.n;
  alignas(64) float new0[kTile];
  alignas(64) float new1[kTwo ? kTile : 1];
  const CodeOf<kKind0> old0(*t.scales[0]);
  const CodeOf<kKind1> old1(kTwo ? *t.scales[1] : 0.0f);
  RangeLanes lanes0, lanes1;
  for (size_t i = 0; i < n; i += lanes) {
    F32Vec p = hn::LoadU(d, old_p + i), s1 = hn::Zero(d);
    F32Vec s0 = decode_codes(old0, codes0 + i);
    if constexpr (kTwo) s1 = decode_codes(old1, codes1 + i);
    Rule::step(c, p, hn::LoadU(d, g + i), s0, s1);
    hn::StoreU(p, d, new_p + i);
    hn::Store(s0, d, new0 + i);
    lanes0.template include<kKind0>(s0);
    if constexpr (kTwo) {
      hn::Store(s1, d, new1 + i);
      lanes1.template include<kKind1>(s1);
    }
  }
  const BlockRange range0 = lanes0.range();
  uint32_t last = range0.largest;
  const uint64_t key = t.key;
  const U32Vec step = hn::Set(U32Tag(), static_cast<uint32_t>(lanes));
  U32Vec numbers = numbers_from(t.lower);
  if constexpr (kTwo) {
    const BlockRange range1 = lanes1.range();
    last = range1.largest;
    const SquareCode made1(range1);
    const AverageCode made0(range0, AverageCode::format_beside(made1));
    for (size_t i = 0; i < n; i += lanes) {
      const U32Vec random = random_bits(key, numbers);
      numbers = hn::Add(numbers, step);
      encode_codes<0>(made0, hn::Load(d, new0 + i), random, codes0 + i);
      encode_codes<1>(made1, hn::Load(d, new1 + i), random, codes1 + i);
    }
    store_word(made0, t.scales[0], codes0, n);
    store_word(made1, t.scales[1], codes1, n);
  } else {
    const auto made0 = code_for<CodeOf<kKind0>>(range0);
    for (size_t i = 0; i < n; i += lanes) {
      const U32Vec random = random_bits(key, numbers);
      numbers = hn::Add(numbers, step);
      encode_codes<0>(made0, hn::Load(d, new0 + i), random, codes0 + i);
    }
    store_word(made0, t.scales[0], codes0, n);
  }
  return hwy::IsSame<Rule, LionRule>() ? 0 : last;
}

using UpdateTile = uint32_t (*)(const UpdateConstants&, const Tile&);

template <class Rule>
UpdateTile tile_of(StateType type) {
  switch (type) {
    case StateType::bf16:
      return &update_tile<Rule, Bf16State>;
    case StateType::int8:
      return &update_block<Rule>;
    case StateType::f32:
      break;
  }
  return &update_tile<Rule, F32State>;
}

UpdateTile tile_of(const UpdateStep& step, StateType type) {
  switch (step.rule) {
    case Rule::adamw:
      return tile_of<AdamWRule>(type);
    case Rule::adam:
      return tile_of<AdamRule>(type);
    case Rule::adagrad:
      return tile_of<AdagradRule>(type);
    case Rule::lion:
      return tile_of<LionRule>(type);
    case Rule::sgd:
      break;
  }
  if (state_count(Rule::sgd, step.beta1) == 0) return &update_tile<PlainSgdRule, F32State>;
  return tile_of<SgdRule>(type);
}

template <class From>
void widen(float* to, const void* from, size_t n) {
  const auto* lane = static_cast<const typename From::Lane*>(from);
  const size_t lanes = hn::Lanes(F32Tag());
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) store<F32>(From::load(lane + i), to + i);
  for (; i < n; ++i) to[i] = From::get(lane[i]);
}

void widen(float* to, const void* from, Type type, size_t n) {
  switch (type) {
    case Type::f32:
      return widen<F32>(to, from, n);
    case Type::bf16:
      return widen<Bf16>(to, from, n);
    case Type::f16:
      return widen<F16>(to, from, n);
  }
}

// Returns the largest magnitude.
template <class To, bool kStream>
uint32_t narrow(typename To::Lane* to, const float* from, size_t n) {
  const size_t lanes = hn::Lanes(F32Tag());
  U32Vec most = hn::Zero(U32Tag());
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const F32Vec v = F32::load(from + i);
    most = hn::Max(most, magnitude_bits(v));
    put<To, kStream>(v, to + i);
  }
  uint32_t largest = hn::GetLane(hn::MaxOfLanes(U32Tag(), most));
  for (; i < n; ++i) {
    largest = std::max(largest, magnitude_of(from[i]));
    to[i] = To::put(from[i]);
  }
  return largest;
}

// Past the caches if that is requested and the address allows it.
template <class To>
uint32_t narrow(void* to, const float* from, size_t n, bool past_caches) {
  auto* lane = static_cast<typename To::Lane*>(to);
  if (past_caches && reinterpret_cast<uintptr_t>(to) % kLine == 0) {
    return narrow<To, true>(lane, from, n);
  }
  return narrow<To, false>(lane, from, n);
}

uint32_t narrow(void* to, Type type, const float* from, size_t n, bool past_caches) {
  switch (type) {
    case Type::f32:
      return narrow<F32>(to, from, n, past_caches);
    case Type::bf16:
      return narrow<Bf16>(to, from, n, past_caches);
    case Type::f16:
      return narrow<F16>(to, from, n, past_caches);
  }
  return 0;
}

void* at(void* array, size_t bytes) {
  return static_cast<std::byte*>(array) + bytes;
}
const void* at(const void* array, size_t bytes) {
  return static_cast<const std::byte*>(array) + bytes;
}

Largest update_target(const UpdateStep& step, float* p, const void* g, Type g_type,
                      const States& states, void* out, Type out_type, size_t n, uint64_t first,
                      bool handed_over) {
  const UpdateConstants constants(step);
  const UpdateTile work = tile_of(step, states.type);
  const size_t count = state_count(step.rule, step.beta1);
  const size_t lanes = hn::Lanes(F32Tag());
  // p itself bypasses the caches only if peers read it next: the next step reads it again.
  const bool p_past = out == nullptr && handed_over && worth_streaming(p, n * sizeof(*p), true);
  const bool out_past =
      out != nullptr && out != g && worth_streaming(out, n * size_of(out_type), handed_over);
  alignas(64) float gradients[kTile];
  alignas(64) float params[kTile];
  alignas(64) float rest[2][kTile];
  Largest largest;

  for (size_t begin = 0, size = 0; begin < n; begin += size) {
    const uint64_t index = first + begin;
    // The random bits' key holds for 2^32 elements.
    size = std::min<uint64_t>({kTile, n - begin, (uint64_t{1} << 32) - (index & 0xffffffffu)});
    const size_t state_begin = state_bytes(states.type, begin);
    const size_t state_size = state_bytes(states.type, size);
    // A partial last vector is copied and padded with zeros.
    const bool whole = size % lanes == 0;
    Tile t;
    t.n = (size + lanes - 1) / lanes * lanes;
    t.key = quant_key(step.seed, static_cast<uint32_t>(index >> 32));
    t.lower = static_cast<uint32_t>(index);
    t.p = p + begin;
    t.new_p = whole && !p_past ? p + begin : params;
    t.g = gradients;
    const void* tile_g = at(g, begin * size_of(g_type));
    if (whole && g_type == Type::f32) {
      t.g = static_cast<const float*>(tile_g);
    } else {
      widen(gradients, tile_g, g_type, size);
      std::fill(gradients + size, gradients + t.n, 0.0f);
    }
    if (!whole) {
      std::copy_n(p + begin, size, params);
      std::fill(params + size, params + t.n, 0.0f);
      t.p = params;
    }
    for (size_t k = 0; k < count; ++k) {
      t.states[k] = at(states.data[k], state_begin);
      if (states.type == StateType::int8) t.scales[k] = states.scales[k] + begin / kBlock;
      if (whole) continue;
      std::memset(rest[k], 0, sizeof(rest[k]));
      std::memcpy(rest[k], t.states[k], state_size);
      t.states[k] = rest[k];
    }

    largest.state = std::max(largest.state, work(constants, t));

    for (size_t k = 0; k < count && !whole; ++k) {
      std::memcpy(at(states.data[k], state_begin), rest[k], state_size);
    }
    if (t.new_p == params) narrow<F32>(p + begin, params, size, p_past);
    if (out != nullptr) {
      const uint32_t value =
          narrow(at(out, begin * size_of(out_type)), out_type, t.new_p, size, out_past);
      largest.value = std::max(largest.value, value);
    }
  }
  if (p_past || out_past) hwy::FlushStream();
  return largest;
}

}  // namespace meron::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meron::kernels {

HWY_EXPORT(update_target);

Largest update(const UpdateStep& step, float* p, const void* g, Type g_type, const States& states,
               void* out, Type out_type, size_t n, uint64_t first, bool handed_over) {
  if (step.rule == Rule::adamw && states.type == StateType::f32) {
    return adamw(adamw_of(step), p, g, g_type, static_cast<float*>(states.data[0]),
                 static_cast<float*>(states.data[1]), out, out_type, n, handed_over);
  }
  return HWY_DYNAMIC_DISPATCH(update_target)(step, p, g, g_type, states, out, out_type, n, first,
                                             handed_over);
}

}  // namespace meron::kernels
#endif

// SPDX-License-Identifier: Apache-2.0
// Encoding and decoding against a copy past the caches, and against plain loops.
#include <cmath>
#include <stdexcept>

#include "bench/memory.h"
#include "kernels/cpu/accumulate.h"
#include "kernels/cpu/copy.h"
#include "kernels/cpu/half.h"
#include "measure.h"
#include "naive.h"

namespace meron::bench {
namespace {

using kernels::Encoded;
using kernels::QuantFormat;
using kernels::Type;

// Values of a step's size and both signs, without a period that a block could see.
float value(size_t i) {
  const auto bits = static_cast<uint32_t>(i * 2654435761u >> 8 & 0xffffff);
  return (static_cast<float>(bits) * 0x1p-24f - 0.5f) * 0.01f;
}

// The blocks of an array of n elements from element i on.
Encoded part(std::byte* base, size_t n, QuantFormat format, size_t i) {
  return kernels::encoded_at(base, n, format, i / format.block);
}

// |in - out| within a step of 4 bits and a rounding to bf16, everywhere.
void check(const uint16_t* in, const uint16_t* out, size_t n, const char* what) {
  for (size_t i = 0; i < n; ++i) {
    const float expected = kernels::f32_from_bf16(in[i]), actual = kernels::f32_from_bf16(out[i]);
    if (!(std::fabs(expected - actual) <= 0.005f / 7 * 0.52f)) {
      throw std::runtime_error(fmt::format(
          "{} turned element {} from {} into {}: a kernel is wrong", what, i, expected, actual));
    }
  }
}

}  // namespace

void measure_codec(Workers& workers, const Options& options, Report& report) {
  const size_t n = options.elements;
  const QuantFormat int8{8, kQuantBlock}, int4{4, kQuantBlock};
  QuantFormat random8 = int8, random4 = int4, smooth8 = int8, smooth4 = int4;
  random8.stochastic = random4.stochastic = true;
  smooth8.hadamard = smooth4.hadamard = true;
  const size_t bytes = kernels::encoded_bytes(n, int8);
  Arena arena(2 * Arena::room_for(2 * n) + Arena::room_for(4 * n) + 2 * Arena::room_for(bytes));
  auto* in = arena.place<uint16_t>(n);
  auto* out = arena.place<uint16_t>(n);
  auto* in32 = arena.place<float>(n);
  auto* code8 = arena.place<std::byte>(bytes);
  auto* code4 = arena.place<std::byte>(bytes);
  workers.run([&](size_t thread) {
    const Slice slice = Slice::of(n, thread, workers.count());
    for (size_t i = slice.begin; i < slice.end; ++i) in32[i] = value(i);
    kernels::convert(in + slice.begin, Type::bf16, in32 + slice.begin, Type::f32,
                     slice.end - slice.begin);
  });

  const auto encode = [&](const void* from, Type type, std::byte* code, QuantFormat format) {
    return [=](size_t i, size_t k) {
      const auto* at = static_cast<const std::byte*>(from) + i * kernels::size_of(type);
      kernels::quantize(part(code, n, format, i), at, type, k, format, 1, i);
    };
  };
  const auto decode = [&](void* to, Type type, std::byte* code, QuantFormat format) {
    return [=](size_t i, size_t k) {
      auto* at = static_cast<std::byte*>(to) + i * kernels::size_of(type);
      kernels::dequantize(at, type, part(code, n, format, i), k, format);
    };
  };
  const double b8 = encoded_element(int8), b4 = encoded_element(int4);
  std::vector<Arm> arms = {
      {"copy", "copy past the caches", 4,
       [&](size_t i, size_t k) { kernels::hand_over(out + i, in + i, k * 2); }},
      {"quantize8", "int8 from bf16", 2 + b8, encode(in, Type::bf16, code8, int8)},
      {"dequantize8", "int8 to bf16", 2 + b8, decode(out, Type::bf16, code8, int8)},
      {"quantize4", "int4 from bf16", 2 + b4, encode(in, Type::bf16, code4, int4)},
      {"dequantize4", "int4 to bf16", 2 + b4, decode(out, Type::bf16, code4, int4)},
      {"naive_quantize8", "int8 from bf16, plain loop", 2 + b8,
       [&](size_t i, size_t k) { naive_quantize(part(code8, n, int8, i), in + i, k, int8); }},
      {"naive_dequantize8", "int8 to bf16, plain loop", 2 + b8,
       [&](size_t i, size_t k) { naive_dequantize(out + i, part(code8, n, int8, i), k, int8); }},
      {"naive_quantize4", "int4 from bf16, plain loop", 2 + b4,
       [&](size_t i, size_t k) { naive_quantize(part(code4, n, int4, i), in + i, k, int4); }},
      {"naive_dequantize4", "int4 to bf16, plain loop", 2 + b4,
       [&](size_t i, size_t k) { naive_dequantize(out + i, part(code4, n, int4, i), k, int4); }},
      {"quantize8_f32", "int8 from f32", 4 + b8, encode(in32, Type::f32, code8, int8)},
      {"dequantize8_f32", "int8 to f32", 4 + b8, decode(in32, Type::f32, code8, int8)},
      {"quantize4_f32", "int4 from f32", 4 + b4, encode(in32, Type::f32, code4, int4)},
      {"dequantize4_f32", "int4 to f32", 4 + b4, decode(in32, Type::f32, code4, int4)},
      {"quantize8_stochastic", "int8 from bf16, stochastic", 2 + b8,
       encode(in, Type::bf16, code8, random8)},
      {"quantize4_stochastic", "int4 from bf16, stochastic", 2 + b4,
       encode(in, Type::bf16, code4, random4)},
      {"quantize8_hadamard", "int8 from bf16, hadamard", 2 + b8,
       encode(in, Type::bf16, code8, smooth8)},
      {"dequantize8_hadamard", "int8 to bf16, hadamard", 2 + b8,
       decode(out, Type::bf16, code8, smooth8)},
      {"quantize4_hadamard", "int4 from bf16, hadamard", 2 + b4,
       encode(in, Type::bf16, code4, smooth4)},
      {"dequantize4_hadamard", "int4 to bf16, hadamard", 2 + b4,
       decode(out, Type::bf16, code4, smooth4)},
  };
  for (const size_t first : {1u, 3u, 5u, 7u}) {  // what encodes, and the one that decodes it
    workers.run([&](size_t thread) {
      const Slice slice = Slice::of(n, thread, workers.count(), kQuantBlock);
      const size_t k = slice.end - slice.begin;
      arms[first].work(slice.begin, k);
      arms[first + 1].work(slice.begin, k);
      check(in + slice.begin, out + slice.begin, k, arms[first].title.c_str());
    });
  }

  take_turns(workers, arms, n, options.repeats);
  fmt::print("Encoding and decoding: {:.1f}M elements, blocks of {}, {} threads\n\n",
             static_cast<double>(n) / 1e6, kQuantBlock, workers.count());
  report.json["codec"] = {{"elements", n},
                          {"block", kQuantBlock},
                          {"threads", workers.count()},
                          {"turns", options.repeats},
                          {"arms", print_arms(arms, n)}};
  const Arm& copy = arms[0];  // the arms after it: four that have goals, and their plain loops
  for (size_t a = 1; a <= 4; ++a) {
    const bool eight = a <= 2;
    report.goals.push_back(
        {arms[a].title + ", over copy", traffic_ratio(arms[a], copy), eight ? 0.9 : 0.75});
    const double over_naive = speedup(arms[a], arms[a + 4]);
    fmt::print("{} over the plain loop: {:.1f}x\n", arms[a].title, over_naive);
    if (a % 2 == 1) {
      report.goals.push_back({arms[a].title + ", over plain loop", over_naive, eight ? 9.0 : 8.0});
    }
  }
  fmt::print("\n");
}

}  // namespace meron::bench

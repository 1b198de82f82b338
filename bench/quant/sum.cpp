// SPDX-License-Identifier: Apache-2.0
// The sum of eight encoded arrays in one pass, against decoding each and adding up what that wrote.
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "bench/memory.h"
#include "kernels/cpu/copy.h"
#include "kernels/cpu/reduce.h"
#include "measure.h"

namespace meron::bench {
namespace {

using kernels::ConstEncoded;
using kernels::QuantFormat;
using kernels::Type;

}  // namespace

void measure_sum(Workers& workers, const Options& options, Report& report) {
  const size_t n = options.sum_elements;
  const QuantFormat int8{8, kQuantBlock}, int4{4, kQuantBlock};
  const size_t bytes8 = kernels::encoded_bytes(n, int8), bytes4 = kernels::encoded_bytes(n, int4);
  Arena arena((kTerms + 2) * Arena::room_for(4 * n) +
              (kTerms + 1) * (Arena::room_for(bytes4) + Arena::room_for(bytes8)));
  auto* out = arena.place<float>(n);
  auto* expected = arena.place<float>(n);
  auto* code = arena.place<std::byte>(bytes4);
  std::vector<std::byte*> coded4, coded8;
  std::vector<float*> decoded;
  for (size_t k = 0; k < kTerms; ++k) {
    coded4.push_back(arena.place<std::byte>(bytes4));
    coded8.push_back(arena.place<std::byte>(bytes8));
    decoded.push_back(arena.place<float>(n));
  }

  const auto inputs = [&](const std::vector<std::byte*>& coded, QuantFormat format, size_t i) {
    std::vector<ConstEncoded> in;
    in.reserve(coded.size());
    for (std::byte* base : coded) {
      in.emplace_back(kernels::encoded_at(base, n, format, i / format.block));
    }
    return in;
  };
  const auto sum = [&](const std::vector<std::byte*>& coded, QuantFormat format) {
    return [&, format](size_t i, size_t m) {
      kernels::dequantize_sum(out + i, false, inputs(coded, format, i).data(), kTerms, 0.125f, m,
                              format, nullptr);
    };
  };
  // The arrays in between are of `type`; both kinds take the same memory.
  const auto in_passes = [&](const std::vector<std::byte*>& coded, QuantFormat format, Type type) {
    return [&, format, type](size_t i, size_t m) {
      std::vector<const void*> pointers;
      for (size_t k = 0; k < kTerms; ++k) {
        auto* to = reinterpret_cast<std::byte*>(decoded[k]) + i * kernels::size_of(type);
        kernels::dequantize(to, type, kernels::encoded_at(coded[k], n, format, i / format.block), m,
                            format);
        pointers.push_back(to);
      }
      kernels::reduce(out + i, false, pointers.data(), kTerms, type, 0.125f, m, nullptr);
    };
  };
  const double b4 = encoded_element(int4), b8 = encoded_element(int8);
  std::vector<Arm> arms = {
      {"copy", "copy past the caches", 8,
       [&](size_t i, size_t m) { kernels::hand_over(out + i, expected + i, m * 4); }},
      {"sum4", "int4, one pass", kTerms * b4 + 4, sum(coded4, int4)},
      {"sum4_by_f32", "int4, decoded to f32, then summed", kTerms * (b4 + 8) + 4,
       in_passes(coded4, int4, Type::f32)},
      {"sum4_by_bf16", "int4, decoded to bf16, then summed", kTerms * (b4 + 4) + 4,
       in_passes(coded4, int4, Type::bf16)},
      {"sum8", "int8, one pass", kTerms * b8 + 4, sum(coded8, int8)},
      {"sum8_by_f32", "int8, decoded to f32, then summed", kTerms * (b8 + 8) + 4,
       in_passes(coded8, int8, Type::f32)},
      {"sum4_encoded", "int4, one pass, encoded to int4", (kTerms + 1) * b4,
       [&](size_t i, size_t m) {
         kernels::dequantize_sum_quantize(kernels::encoded_at(code, n, int4, i / int4.block),
                                          inputs(coded4, int4, i).data(), kTerms, 0.125f, m, int4,
                                          int4, 1, i);
       }},
  };

  workers.run([&](size_t thread) {
    const Slice slice = Slice::of(n, thread, workers.count(), kQuantBlock);
    const size_t i = slice.begin, m = slice.end - slice.begin;
    for (size_t k = 0; k < kTerms; ++k) {
      for (size_t j = i; j < slice.end; ++j) {
        out[j] = std::sin(static_cast<float>((j + 31 * k) % 1000)) * 0.01f;
      }
      kernels::quantize(kernels::encoded_at(coded4[k], n, int4, i / kQuantBlock), out + i,
                        Type::f32, m, int4, 1, i);
      kernels::quantize(kernels::encoded_at(coded8[k], n, int8, i / kQuantBlock), out + i,
                        Type::f32, m, int8, 1, i);
    }
    for (const size_t fused : {1u, 4u}) {
      arms[fused + 1].work(i, m);
      std::memcpy(expected + i, out + i, m * 4);
      arms[fused].work(i, m);
      if (std::memcmp(expected + i, out + i, m * 4) != 0) {
        throw std::runtime_error("one pass has another sum than many: a kernel is wrong");
      }
    }
  });

  take_turns(workers, arms, n, options.repeats);
  fmt::print("Sums of {} arrays of {:.1f}M elements, blocks of {}, {} threads\n\n", kTerms,
             static_cast<double>(n) / 1e6, kQuantBlock, workers.count());
  report.json["sum"] = {{"elements", n},
                        {"terms", kTerms},
                        {"block", kQuantBlock},
                        {"threads", workers.count()},
                        {"turns", options.repeats},
                        {"arms", print_arms(arms, n)}};
  report.goals.push_back({"sum of int4, over f32 in passes", speedup(arms[1], arms[2]), 4.0});
  report.goals.push_back({"sum of int4, over bf16 in passes", speedup(arms[1], arms[3]), 4.0});
  report.goals.push_back({"sum of int4, over copy", traffic_ratio(arms[1], arms[0]), 0.7});
}

}  // namespace meron::bench

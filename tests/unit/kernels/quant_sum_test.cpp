// SPDX-License-Identifier: Apache-2.0
// Sums of encoded arrays equal decoding, reduce() and encoding, one after the other.
#include <bit>
#include <cmath>
#include <vector>

#include "kernels/cpu/copy.h"
#include "kernels/cpu/reduce.h"
#include "quant_array.h"
#include "targets.h"

namespace meron::kernels {
namespace {

MERON_EACH_TARGET(DequantizeSum);

// Encoded arrays of the same numbers, and what they decode to.
struct Terms {
  Terms(size_t count, size_t n, QuantFormat format, bool special) {
    for (size_t k = 0; k < count; ++k) {
      Array values(Type::f32, n);
      if (special) {
        fill_blocks(values, static_cast<uint32_t>(k + n), format);
      } else {
        fill(values, static_cast<uint32_t>(k + n), false);
      }
      codes.emplace_back(n, format);
      quantize(codes.back().at(), values.data(), Type::f32, n, format, k, 0);
      decoded.emplace_back(Type::f32, n);
      dequantize(decoded.back().data(), Type::f32, codes.back().at(), n, format);
    }
    for (CodeArray& code : codes) encoded.emplace_back(code.at());
    for (Array& array : decoded) pointers.push_back(array.data());
  }

  std::vector<CodeArray> codes;
  std::vector<Array> decoded;
  std::vector<ConstEncoded> encoded;
  std::vector<const void*> pointers;
};

void expect_reduced(QuantFormat format, size_t count, size_t n, bool accumulate, bool special) {
  SCOPED_TRACE(testing::Message() << format << ", " << count << " of " << n << " elements, "
                                  << (accumulate ? "accumulating" : "new"));
  const Terms terms(count, n, format, special);
  for (const bool handed_over : {false, true}) {
    Array actual(Type::f32, n, n % 2);
    fill(actual, 5, special);
    Array expected(actual), unmeasured(actual);
    ExactSum squares, expected_squares;
    dequantize_sum(actual.f32(), accumulate, terms.encoded.data(), count, 0.3f, n, format, &squares,
                   handed_over);
    dequantize_sum(unmeasured.f32(), accumulate, terms.encoded.data(), count, 0.3f, n, format,
                   nullptr, handed_over);
    reduce(expected.f32(), accumulate, terms.pointers.data(), count, Type::f32, 0.3f, n,
           &expected_squares);
    ASSERT_TRUE(same(actual, expected));
    ASSERT_TRUE(same(unmeasured, expected));
    ASSERT_TRUE(std::bit_cast<uint64_t>(squares.value()) ==
                    std::bit_cast<uint64_t>(expected_squares.value()) ||
                (std::isnan(squares.value()) && std::isnan(expected_squares.value())));
  }
}

TEST_P(DequantizeSum, IsDecodingAndThenReduce) {
  for (const QuantFormat format : formats({64, 256, 2048})) {
    if (format.stochastic) continue;
    for (const size_t count : {0u, 1u, 2u, 3u, 8u}) {
      for (const size_t n : {0u, 1u, 63u, 64u, 100u, 256u, 300u, 2048u, 2500u}) {
        for (const bool accumulate : {false, true}) {
          expect_reduced(format, count, n, accumulate, n > 300);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(DequantizeSum, LargeOutputsAreTheSame) {
  const size_t n = kStreamBytes / sizeof(float) + 300;
  expect_reduced({4, 256}, 2, n, false, false);
  expect_reduced({8, 64}, 2, n, true, false);
}

TEST_P(DequantizeSum, EncodedAtOnceIsTheSumEncodedAfterwards) {
  for (const QuantFormat in : {QuantFormat{8, 64}, {4, 256}, {4, 64, false, true}, {8, 2048}}) {
    for (const QuantFormat out : formats({64, 512})) {
      for (const size_t n : {0u, 1u, 64u, 100u, 512u, 2600u}) {
        const Terms terms(3, n, in, n > 512);
        Array sum(Type::f32, n);
        CodeArray actual(n, out), expected(n, out), unmeasured(n, out);
        QuantError error, expected_error;
        dequantize_sum(sum.f32(), false, terms.encoded.data(), 3, 0.5f, n, in, nullptr);
        quantize(expected.at(), sum.data(), Type::f32, n, out, 4, 128, nullptr, nullptr, 0,
                 &expected_error);
        dequantize_sum_quantize(actual.at(), terms.encoded.data(), 3, 0.5f, n, in, out, 4, 128,
                                &error);
        dequantize_sum_quantize(unmeasured.at(), terms.encoded.data(), 3, 0.5f, n, in, out, 4, 128);
        ASSERT_TRUE(same(actual, expected)) << in << " to " << out << ", " << n;
        ASSERT_TRUE(same(unmeasured, expected)) << in << " to " << out << ", " << n;
        EXPECT_EQ(error.error_squares, expected_error.error_squares);
        EXPECT_EQ(error.squares, expected_error.squares);
        EXPECT_EQ(error.worst_block, expected_error.worst_block);
      }
    }
  }
}

TEST_P(DequantizeSum, TheCodeMayReplaceAnInput) {
  for (const QuantFormat format : {QuantFormat{8, 64}, {4, 256}, {4, 2048, true, true}}) {
    constexpr size_t kN = 5000;
    Terms terms(3, kN, format, true);
    CodeArray expected(kN, format);
    dequantize_sum_quantize(expected.at(), terms.encoded.data(), 3, 1.0f, kN, format, format, 1, 0);
    dequantize_sum_quantize(terms.codes[1].at(), terms.encoded.data(), 3, 1.0f, kN, format, format,
                            1, 0);
    ASSERT_TRUE(same(terms.codes[1], expected)) << format;
  }
}

}  // namespace
}  // namespace meron::kernels

// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/quant.h"

#include <optional>

#include "quant_array.h"
#include "runner.h"

namespace meron::cuda {
namespace {

using kernels::Array;
using kernels::CodeArray;
using kernels::ExactSum;
using kernels::formats;

// Codes where kernels use them. With an offset the bytes are not aligned.
class CodeMirror {
 public:
  explicit CodeMirror(CodeArray& code, size_t offset = 0)
      : payload_(code.payload(), code.payload_bytes(), offset),
        steps_(code.at().steps, 4 * code.blocks()) {}

  Encoded at() const { return {payload_.data<std::byte>(), steps_.data<float>()}; }
  void read(CodeArray& code) {
    payload_.read(code.at().payload);
    steps_.read(code.at().steps);
  }

 private:
  Mirror payload_, steps_;
};

// The last digits are free.
void expect_near(const QuantError& actual, const QuantError& expected) {
  const auto near = [](double a, double b, double all) {
    if (std::isinf(a) || std::isinf(b)) return a == b;
    return std::fabs(std::sqrt(a) - std::sqrt(b)) <= 2e-4 * std::sqrt(b) + 2e-6 * std::sqrt(all);
  };
  EXPECT_TRUE(near(actual.squares, expected.squares, expected.squares))
      << actual.squares << ", expected " << expected.squares;
  EXPECT_TRUE(near(actual.error_squares, expected.error_squares, expected.squares))
      << actual.error_squares << ", expected " << expected.error_squares;
  if (std::isinf(expected.worst_block)) {
    EXPECT_EQ(actual.worst_block, expected.worst_block);
  } else {
    EXPECT_NEAR(actual.worst_block, expected.worst_block, 1e-4 * expected.worst_block + 1e-6);
  }
}

struct Extras {
  bool minus = false, residual = false, error = false;
};

void expect_quantized(QuantFormat format, Type type, size_t n, size_t offset, uint64_t first,
                      Extras extras) {
  SCOPED_TRACE(testing::Message() << format << ", " << n << " of " << kernels::name_of(type)
                                  << " at " << offset << (extras.minus ? ", minus" : "")
                                  << (extras.residual ? ", residual" : "")
                                  << (extras.error ? ", error" : ""));
  Array in(type, n, offset), minus(type, n, offset), residual(Type::f32, n, offset);
  kernels::fill_blocks(in, static_cast<uint32_t>(n), format);
  kernels::fill(minus, 2, false);
  kernels::fill(residual, 3, false);
  CodeArray expected(n, format), actual(n, format);
  Mirror on_device(in), on_minus(minus), on_residual(residual);
  CodeMirror code(expected, offset % 4);
  QuantError error{1.0, 2.0, 0.0f}, *to = extras.error ? &error : nullptr;
  Mirror on_error = mirror_of(error);
  constexpr uint64_t kSeed = 0x123456789abcdefu;
  ASSERT_EQ(quantize(code.at(), on_device.data(), type, n, format, kSeed, first,
                     extras.minus ? on_minus.data() : nullptr,
                     extras.residual ? on_residual.data<float>() : nullptr, 0.3f,
                     extras.error ? on_error.data<QuantError>() : nullptr, stream()),
            cudaSuccess);
  kernels::quantize(expected.at(), in.data(), type, n, format, kSeed, first,
                    extras.minus ? minus.data() : nullptr,
                    extras.residual ? residual.f32() : nullptr, 0.3f, to);
  code.read(actual);
  ASSERT_TRUE(same(actual, expected));
  Array kept(residual);
  on_residual.read(kept);
  ASSERT_TRUE(same(kept, residual));
  expect_near(on_error.value<QuantError>(), error);
}

constexpr size_t kSizes[] = {0, 1, 255, 256, 257, 5000};

TEST(CudaQuantize, EveryFormatEqualsTheCpu) {
  size_t turn = 0;
  for (const QuantFormat format : formats({64, 128, 256, 512, 1024, 2048})) {
    for (const size_t n : kSizes) {
      const Type type = kernels::kTypes[turn++ % 3];
      expect_quantized(format, type, n, turn % 4 == 0, 64 * turn, {});
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(CudaQuantize, WithWhatMayBeGivenEqualsTheCpu) {
  size_t turn = 0;
  for (const QuantFormat format : formats({64, 256, 512, 2048})) {
    for (const size_t n : {1u, 257u, 3000u}) {
      const Type type = kernels::kTypes[turn++ % 3];
      const Extras extras{turn % 2 == 0, turn % 4 < 3, turn % 3 != 0};
      expect_quantized(format, type, n, turn % 5 == 0, 64 * turn, extras);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

// Blocks of threads continue with other tiles, and exchange their maxima in the same memory.
TEST(CudaQuantize, ManyTilesEqualTheCpu) {
  for (const uint32_t block : {256u, 1024u, 2048u}) {
    expect_quantized({8, block}, Type::f32, 30011, 0, 0, {});
    expect_quantized({4, block}, Type::bf16, 15000, 0, 0, {false, true, true});
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(CudaQuantize, EveryTypeAndPointerEqualsTheCpu) {
  for (const Type type : kernels::kTypes) {
    for (const bool residual : {false, true}) {
      for (const size_t offset : {0u, 1u}) {
        expect_quantized({8, 256}, type, 2700, offset, 0, {false, residual, residual});
        expect_quantized({4, 256, true, true}, type, 2700, offset, (uint64_t{1} << 32) - 1024,
                         {residual, residual, false});
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

#if !defined(MERON_EMULATED_SIMT)  // which has no time for it
TEST(CudaQuantize, LargeArraysEqualTheCpu) {
  for (const QuantFormat format : formats({64, 256, 2048})) {
    for (const Type type : kernels::kTypes) {
      expect_quantized(format, type, (size_t{2} << 20) + 77, 0, 0, {});
      expect_quantized(format, type, (size_t{1} << 20) + 77, 1, 64, {true, true, true});
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}
#endif

// Bytes that are not what encoding makes, and steps that are no numbers.
CodeArray any_code(size_t n, QuantFormat format, uint32_t seed, bool special) {
  CodeArray code(n, format);
  code.fill_bytes(seed);
  if (special && code.blocks() > 2) {
    code.set_step(0, NAN);
    code.set_step(1, 0.0f);
    code.set_step(2, 1e-42f);
  }
  return code;
}

void expect_decoded(QuantFormat format, Type type, size_t n, size_t offset, bool add) {
  SCOPED_TRACE(testing::Message() << format << ", " << n << " of " << kernels::name_of(type)
                                  << " at " << offset << (add ? ", added" : ""));
  CodeArray code = any_code(n, format, static_cast<uint32_t>(n), n > 1000);
  Array expected(type, n, offset);
  kernels::fill(expected, 4, false);
  Array actual(expected);
  CodeMirror from(code, offset);
  Mirror out(actual);
  kernels::dequantize(expected.data(), type, code.at(), n, format, add);
  ASSERT_EQ(dequantize(out.data(), type, from.at(), n, format, add, stream()), cudaSuccess);
  out.read(actual);
  ASSERT_TRUE(same(actual, expected));
}

TEST(CudaDequantize, EveryFormatEqualsTheCpu) {
  size_t turn = 0;
  for (const QuantFormat format : formats({64, 128, 256, 512, 1024, 2048})) {
    if (format.stochastic) continue;
    for (const size_t n : kSizes) {
      for (const bool add : {false, true}) {
        ++turn;
        expect_decoded(format, kernels::kTypes[turn % 3], n, turn % 5 == 0, add);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

#if !defined(MERON_EMULATED_SIMT)  // which has no time for it
TEST(CudaDequantize, LargeArraysEqualTheCpu) {
  for (const QuantFormat format : formats({64, 256, 2048})) {
    for (const Type type : kernels::kTypes) {
      expect_decoded(format, type, (size_t{4} << 20) + 77, 0, false);
      expect_decoded(format, type, (size_t{1} << 20) + 77, 1, true);
    }
  }
}
#endif

struct Inputs {
  Inputs(size_t count, size_t n, QuantFormat format, bool special, size_t offset) {
    for (size_t k = 0; k < count; ++k) {
      codes.push_back(any_code(n, format, static_cast<uint32_t>(k + n), special && k == 1));
    }
    for (CodeArray& code : codes) {
      mirrors.emplace_back(code, offset);
      host.emplace_back(code.at());
      device.emplace_back(mirrors.back().at());
    }
  }
  std::vector<CodeArray> codes;
  std::vector<CodeMirror> mirrors;
  std::vector<ConstEncoded> host, device;
};

void expect_summed(QuantFormat format, size_t count, size_t n, bool accumulate, size_t offset = 0) {
  SCOPED_TRACE(testing::Message() << format << ", " << count << " of " << n
                                  << (accumulate ? ", accumulated" : ""));
  Inputs inputs(count, n, format, n > 4000, offset);
  Array expected(Type::f32, n, offset);
  kernels::fill(expected, 9, false);
  Array actual(expected);
  Mirror out(actual), pieces = mirror_of(SquaresPieces{});
  ExactSum squares;
  kernels::dequantize_sum(expected.f32(), accumulate, inputs.host.data(), count, 0.3f, n, format,
                          &squares);
  ASSERT_EQ(
      dequantize_sum(out.data<float>(), accumulate, inputs.device.data(), count, 0.3f, n, format,
                     count % 3 == 1 ? nullptr : pieces.data<SquaresPieces>(), stream()),
      cudaSuccess);
  out.read(actual);
  ASSERT_TRUE(same(actual, expected));
  if (count % 3 == 1) return;
  ASSERT_TRUE(same_sum(pieces, squares));
}

TEST(CudaDequantizeSum, EveryFormatEqualsTheCpu) {
  size_t turn = 0;
  for (const QuantFormat format : formats({64, 128, 256, 512, 1024, 2048})) {
    if (format.stochastic) continue;
    for (const size_t n : kSizes) {
      expect_summed(format, 2 + turn % 2, n, turn % 4 < 2, turn % 7 == 0);
      ++turn;
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(CudaDequantizeSum, AnyNumberOfInputs) {
  for (size_t count = 0; count <= 9; ++count) {
    for (const uint32_t bits : {8u, 4u}) {
      for (const bool accumulate : {false, true}) {
        expect_summed({bits, 256}, count, 700, accumulate);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
  expect_summed({4, 64, false, true}, 9, 300, false);
  expect_summed({4, 64}, 2 * kEncodedInputs + 2, 100, true);
}

#if !defined(MERON_EMULATED_SIMT)  // which has no time for it
TEST(CudaDequantizeSum, LargeArraysEqualTheCpu) {
  for (const QuantFormat format : formats({64, 256, 2048})) {
    if (format.stochastic) continue;
    expect_summed(format, 8, (size_t{2} << 20) + 77, false);
    expect_summed(format, 3, (size_t{1} << 20) + 1, true, 1);
    if (testing::Test::HasFatalFailure()) return;
  }
}
#endif

void expect_requantized(QuantFormat in, QuantFormat out, size_t count, size_t n) {
  SCOPED_TRACE(testing::Message() << in << " to " << out << ", " << count << " of " << n);
  Inputs inputs(count, n, in, n > 2000, 0);
  CodeArray expected(n, out), actual(n, out);
  CodeMirror code(expected);
  QuantError error;
  Mirror on_error = mirror_of(error);
  kernels::dequantize_sum_quantize(expected.at(), inputs.host.data(), count, 0.5f, n, in, out, 4,
                                   128, &error);
  ASSERT_EQ(
      dequantize_sum_quantize(code.at(), inputs.device.data(), count, 0.5f, n, in, out, 4, 128,
                              count == 3 ? on_error.data<QuantError>() : nullptr, stream()),
      cudaSuccess);
  code.read(actual);
  ASSERT_TRUE(same(actual, expected));
  if (count == 3) expect_near(on_error.value<QuantError>(), error);
}

TEST(CudaDequantizeSumQuantize, EqualsTheCpu) {
  size_t turn = 0;
  for (const QuantFormat in : {QuantFormat{8, 64}, {4, 256}, {4, 64, false, true}, {8, 2048}}) {
    for (const QuantFormat out : formats({64, 512, 2048})) {
      for (const size_t n : {0u, 1u, 100u, 2600u}) {
        if (n < 200 && out.stochastic) continue;
        expect_requantized(in, out, 2 + turn++ % 2, n);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
  expect_requantized({4, 512}, {8, 2048}, 3, 15000);
  for (size_t count = 0; count <= 9; ++count) expect_requantized({8, 128}, {4, 256}, count, 300);
}

TEST(CudaDequantizeSumQuantize, MoreInputsThanALaunchTakesAreRefused) {
  const std::vector<ConstEncoded> inputs(kEncodedInputs + 1);
  EXPECT_EQ(dequantize_sum_quantize({}, inputs.data(), inputs.size(), 1.0f, 1, {8, 64}, {8, 64}, 0,
                                    0, nullptr, stream()),
            cudaErrorInvalidValue);
}

TEST(CudaDequantizeSumQuantize, TheCodeMayReplaceAnInput) {
  for (const QuantFormat format : {QuantFormat{8, 64}, {4, 256}, {4, 2048, true, true}}) {
    constexpr size_t kN = 5000;
    Inputs inputs(3, kN, format, false, 0);
    CodeArray expected(kN, format), actual(kN, format);
    kernels::dequantize_sum_quantize(expected.at(), inputs.host.data(), 3, 1.0f, kN, format, format,
                                     1, 0);
    ASSERT_EQ(dequantize_sum_quantize(inputs.mirrors[1].at(), inputs.device.data(), 3, 1.0f, kN,
                                      format, format, 1, 0, nullptr, stream()),
              cudaSuccess);
    inputs.mirrors[1].read(actual);
    EXPECT_TRUE(same(actual, expected)) << format;
  }
}

}  // namespace
}  // namespace meron::cuda

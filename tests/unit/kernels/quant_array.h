// SPDX-License-Identifier: Apache-2.0
// Encoded arrays for the quantization tests, watched for writes past their ends.
#pragma once

#include <bit>
#include <cstring>
#include <utility>
#include <vector>

#include "array.h"
#include "kernels/cpu/quant.h"
#include "kernels/cpu/quant_block.h"
#include "kernels/cpu/quant_reference.h"

namespace meron::kernels {

inline std::ostream& operator<<(std::ostream& out, QuantFormat format) {
  return out << format.bits << " bits, block " << format.block
             << (format.stochastic ? ", stochastic" : "") << (format.hadamard ? ", hadamard" : "");
}

// All formats, of the given blocks.
inline std::vector<QuantFormat> formats(std::initializer_list<uint32_t> blocks) {
  std::vector<QuantFormat> result;
  for (const uint32_t bits : {8u, 4u}) {
    for (const uint32_t block : blocks) {
      for (const bool stochastic : {false, true}) {
        for (const bool hadamard : {false, true}) {
          result.push_back({bits, block, stochastic, hadamard});
        }
      }
    }
  }
  return result;
}

// Sizes around those of vectors, runs and blocks.
inline std::vector<size_t> sizes_around(size_t block) {
  return {0,
          1,
          31,
          33,
          63,
          64,
          65,
          100,
          block - 1,
          block,
          block + 1,
          2 * block,
          3 * block - 7,
          9 * block,
          9 * block + 64,
          9 * block + 79};
}

class CodeArray {
 public:
  CodeArray(size_t n, QuantFormat format)
      : format_(format),
        payload_(Type::f32, encoded_blocks(n, format) * encoded_block_bytes(format) / 4),
        steps_(Type::f32, encoded_blocks(n, format)) {}

  Encoded at(size_t block = 0) {
    return {static_cast<std::byte*>(payload_.data()) + block * encoded_block_bytes(format_),
            steps_.f32() + block};
  }
  size_t blocks() const { return steps_.size(); }
  QuantFormat format() const { return format_; }
  float step(size_t block) const { return steps_.get(block); }
  size_t payload_bytes() const { return payload_.size_bytes(); }
  const unsigned char* payload() const {
    return static_cast<const unsigned char*>(payload_.data());
  }

  // The integer that stands for element i.
  int q(size_t i) const {
    if (format_.bits == 8) return static_cast<signed char>(payload()[i]);
    const int both = payload()[i / 64 * 32 + i % 32];
    const int half = i % 64 < 32 ? both & 0xf : both >> 4;
    return half < 8 ? half : half - 16;
  }

  // Bytes that decode to many different numbers, -8 and -128 among them.
  void fill_bytes(uint32_t seed) {
    std::mt19937 random(seed);
    auto* bytes = static_cast<unsigned char*>(payload_.data());
    for (size_t i = 0; i < payload_.size_bytes(); ++i) bytes[i] = random() & 0xff;
    for (size_t b = 0; b < blocks(); ++b) steps_.set(b, std::ldexp(1.0f + 0.001f * b, b % 9 - 4));
  }
  void set_step(size_t block, float step) { steps_.set(block, step); }

  friend testing::AssertionResult same(const CodeArray& actual, const CodeArray& expected) {
    for (size_t b = 0; b < actual.blocks(); ++b) {
      if (std::memcmp(actual.steps_.at(b), expected.steps_.at(b), 4) != 0) {
        return testing::AssertionFailure() << "step " << b << " of " << actual.blocks() << ": "
                                           << actual.step(b) << ", expected " << expected.step(b);
      }
    }
    const bool equal =
        std::memcmp(actual.payload(), expected.payload(), actual.payload_bytes()) == 0;
    for (size_t i = 0; i < actual.blocks() * actual.format_.block && !equal; ++i) {
      if (actual.q(i) != expected.q(i)) {
        return testing::AssertionFailure()
               << "element " << i << ": " << actual.q(i) << ", expected " << expected.q(i);
      }
    }
    if (!actual.payload_.intact() || !actual.steps_.intact()) {
      return testing::AssertionFailure() << "written outside the array";
    }
    return testing::AssertionSuccess();
  }

 private:
  QuantFormat format_;
  Array payload_, steps_;
};

// Like fill(), with a few blocks of one kind each: tiny, zero, huge, not finite. After the
// transform the largest float may decode to infinity, so its blocks are less huge.
inline void fill_blocks(Array& array, uint32_t seed, QuantFormat format) {
  const size_t block = format.block;
  const float huge = format.hadamard ? 1e38f : 3.4028235e38f;
  fill(array, seed, false);
  for (size_t i = 0; i < array.size(); ++i) {
    switch (i / block % 9) {
      case 1:
        array.set(i, i % 3 == 0 ? 1e-40f : 0x1p-97f);
        break;
      case 3:
        array.set(i, 0.0f);
        break;
      case 4:
        array.set(i, i % 7 == 0 ? -huge : 1e37f);
        break;
      case 6:
        if (i % block == seed % block) array.set(i, i % 2 == 0 ? INFINITY : NAN);
        break;
      case 7:
        array.set(i, array.get(i) * 0x1p-90f);
        break;
      default:
        break;
    }
  }
}

}  // namespace meron::kernels

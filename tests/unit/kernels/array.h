// SPDX-License-Identifier: Apache-2.0
// Arrays of any storage type for the kernel tests: placed where the test wants them, watched for
// writes past their ends, filled with ordinary and special values, compared by bits.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <random>

#include "kernels/cpu/reference.h"

namespace meron::kernels {

inline constexpr Type kTypes[] = {Type::f32, Type::bf16, Type::f16};

inline const char* name_of(Type type) {
  return type == Type::f32 ? "f32" : type == Type::bf16 ? "bf16" : "f16";
}

// n elements that start `offset` elements after a cache line's start.
class Array {
 public:
  Array(Type type, size_t n, size_t offset = 0)
      : type_(type), size_(n), offset_(kFront + offset * size_of(type)), bytes_(allocate()) {
    std::memset(bytes_.get(), kFill, total());
    std::memset(data(), 0, size_bytes());
  }
  Array(const Array& other)
      : type_(other.type_), size_(other.size_), offset_(other.offset_), bytes_(allocate()) {
    std::memcpy(bytes_.get(), other.bytes_.get(), total());
  }
  Array& operator=(const Array&) = delete;

  Type type() const { return type_; }
  size_t size() const { return size_; }
  size_t size_bytes() const { return size_ * size_of(type_); }
  void* data() { return bytes_.get() + offset_; }
  const void* data() const { return bytes_.get() + offset_; }
  float* f32() { return static_cast<float*>(data()); }
  uint16_t* u16() { return static_cast<uint16_t*>(data()); }

  float get(size_t i) const {
    float value;
    convert_reference(&value, Type::f32, at(i), type_, 1);
    return value;
  }
  void set(size_t i, float value) {
    convert_reference(const_cast<void*>(at(i)), type_, &value, Type::f32, 1);
  }
  const void* at(size_t i) const {
    return static_cast<const unsigned char*>(data()) + i * size_of(type_);
  }

  // True if nothing was written before the first or after the last element.
  bool intact() const {
    const auto untouched = [](unsigned char byte) { return byte == kFill; };
    const unsigned char *begin = bytes_.get(), *end = begin + total();
    return std::all_of(begin, begin + offset_, untouched) &&
           std::all_of(begin + offset_ + size_bytes(), end, untouched);
  }

 private:
  static constexpr unsigned char kFill = 0xa5;
  static constexpr size_t kFront = 64;
#if defined(__SANITIZE_ADDRESS__)
  static constexpr size_t kBack = 0;  // the sanitizer then sees reads past the end as well
#else
  static constexpr size_t kBack = 128;
#endif

  struct Free {
    void operator()(unsigned char* bytes) const {
      ::operator delete[](bytes, std::align_val_t(64));
    }
  };
  size_t total() const {
    return offset_ + size_bytes() + kBack;
  }
  std::unique_ptr<unsigned char[], Free> allocate() const {
    return std::unique_ptr<unsigned char[], Free>(
        static_cast<unsigned char*>(::operator new[](total(), std::align_val_t(64))));
  }

  Type type_;
  size_t size_;
  size_t offset_;
  std::unique_ptr<unsigned char[], Free> bytes_;
};

// Ordinary values of many magnitudes; with `special`, every few elements one that is not ordinary.
// Large arrays repeat themselves, at an odd distance: most of a test's time would go here.
inline void fill(Array& array, uint32_t seed, bool special) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  constexpr float kSpecial[] = {0.0f,       -0.0f,    kInfinity, -kInfinity, kNaN,
                                1e-45f,     -1e-40f,  0x1p-126f, 0x1p-24f,   0x1p-25f,
                                0x1.8p-25f, 3e-5f,    65504.f,   65519.9f,   65520.f,
                                3.4e38f,    -3.4e38f, 1e20f,     1e-20f,     0x1.fffp-15f};
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> mantissa(-1.0f, 1.0f);
  std::uniform_int_distribution<int> exponent(-12, 4);
  constexpr size_t kPeriod = 65521;
  for (size_t i = 0; i < std::min(array.size(), kPeriod); ++i) {
    float value = std::ldexp(mantissa(random), exponent(random));
    if (special && random() % 5 == 0) value = kSpecial[random() % std::size(kSpecial)];
    array.set(i, value);
  }
  const size_t bytes = array.size_bytes(), period = kPeriod * size_of(array.type());
  for (size_t done = period; done < bytes; done += period) {
    std::memcpy(static_cast<unsigned char*>(array.data()) + done, array.data(),
                std::min(period, bytes - done));
  }
}

// Equal bits, where arithmetic yields NaNs whose sign and payload are free.
inline testing::AssertionResult same(const Array& actual, const Array& expected) {
  const bool equal = std::memcmp(actual.data(), expected.data(), actual.size_bytes()) == 0;
  for (size_t i = 0; i < actual.size() && !equal; ++i) {
    if (std::memcmp(actual.at(i), expected.at(i), size_of(actual.type())) == 0) continue;
    if (std::isnan(actual.get(i)) && std::isnan(expected.get(i))) continue;
    return testing::AssertionFailure() << "element " << i << " of " << actual.size() << ": "
                                       << actual.get(i) << ", expected " << expected.get(i);
  }
  if (!actual.intact()) return testing::AssertionFailure() << "written outside the array";
  return testing::AssertionSuccess();
}

}  // namespace meron::kernels

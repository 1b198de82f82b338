// SPDX-License-Identifier: Apache-2.0
// Where the cases of this folder run: emulated here, and on a device in tests/gpu.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "array.h"
#include "kernels/cuda/kernels.h"

namespace meron::cuda {

cudaStream_t stream();
// Memory that kernels use, aligned to 256 bytes. An error ends the program.
void* allocate(size_t bytes);
void release(void* memory);
void copy_in(void* to, const void* from, size_t bytes);
void copy_out(void* to, const void* from, size_t bytes);  // after what was enqueued

// A copy of bytes of the host where kernels use it, as far from an aligned address, and watched for
// writes before its beginning and after its end.
class Mirror {
 public:
  Mirror(const void* host, size_t bytes, size_t offset = 0)
      : bytes_(bytes), offset_(kGuard + offset), all_(offset_ + bytes + kGuard, kFill) {
    if (bytes != 0) std::memcpy(all_.data() + offset_, host, bytes);
    memory_ = static_cast<unsigned char*>(allocate(all_.size()));
    copy_in(memory_, all_.data(), all_.size());
  }
  explicit Mirror(const kernels::Array& array)
      : Mirror(array.data(), array.size_bytes(), reinterpret_cast<uintptr_t>(array.data()) % 64) {}
  Mirror(Mirror&& other) noexcept
      : bytes_(other.bytes_),
        offset_(other.offset_),
        all_(std::move(other.all_)),
        memory_(std::exchange(other.memory_, nullptr)) {}
  ~Mirror() {
    if (memory_ != nullptr) release(memory_);
  }

  template <class T = void>
  T* data() const {
    return reinterpret_cast<T*>(memory_ + offset_);
  }

  // Reads the current content.
  void read(void* host) {
    copy_out(all_.data(), memory_, all_.size());
    if (bytes_ != 0) std::memcpy(host, all_.data() + offset_, bytes_);
    const auto untouched = [](unsigned char byte) { return byte == kFill; };
    const auto end = all_.begin() + static_cast<ptrdiff_t>(offset_ + bytes_);
    EXPECT_TRUE(
        std::all_of(all_.begin(), all_.begin() + static_cast<ptrdiff_t>(offset_), untouched) &&
        std::all_of(end, all_.end(), untouched))
        << "written outside the array";
  }
  void read(kernels::Array& array) { read(array.data()); }

  template <class T>
  T value() {
    T result;
    read(&result);
    return result;
  }

 private:
  static constexpr size_t kGuard = 256;
  static constexpr unsigned char kFill = 0xa5;

  size_t bytes_, offset_;
  std::vector<unsigned char> all_;
  unsigned char* memory_ = nullptr;
};

// One value.
template <class T>
Mirror mirror_of(const T& value) {
  return Mirror(&value, sizeof(value));
}

inline testing::AssertionResult same_value(double actual, double expected) {
  if (std::memcmp(&actual, &expected, sizeof(actual)) == 0 ||
      (std::isnan(actual) && std::isnan(expected))) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << actual << ", expected " << expected;
}

inline testing::AssertionResult same_sum(Mirror& pieces, const kernels::ExactSum& expected) {
  return same_value(kernels::ExactSum(pieces.value<SquaresPieces>()).value(), expected.value());
}

}  // namespace meron::cuda

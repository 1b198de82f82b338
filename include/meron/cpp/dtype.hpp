// SPDX-License-Identifier: Apache-2.0
// meron/cpp/dtype.hpp: element types, and typed views of the library's memory.
#ifndef MERON_CPP_DTYPE_HPP
#define MERON_CPP_DTYPE_HPP

#include <cstring>
#include <type_traits>

#include "meron/cpp/base.hpp"
#include "meron/cpp/values.hpp"
#include "meron/param.h"

namespace meron {
inline namespace MERON_CPP_NAMESPACE {

// Bytes per element.
inline size_t size_of(DType dtype) noexcept {
  return meron_dtype_size(static_cast<meron_dtype>(dtype));
}

namespace detail {

inline uint32_t bits_of(float value) noexcept {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}
inline float float_of(uint32_t bits) noexcept {
  float value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

}  // namespace detail

// bfloat16: the upper half of a float. Storage and conversion, no arithmetic.
struct BFloat16 {
  uint16_t bits;

  // Rounds to nearest, ties to even; NaN stays NaN.
  static BFloat16 from(float value) noexcept {
    const uint32_t wide = detail::bits_of(value);
    if (value != value) return {static_cast<uint16_t>(wide >> 16 | 0x40U)};
    return {static_cast<uint16_t>((wide + 0x7fffU + (wide >> 16 & 1U)) >> 16)};
  }
  explicit operator float() const noexcept {
    return detail::float_of(static_cast<uint32_t>(bits) << 16);
  }
};

// IEEE 754 binary16. Storage and conversion, no arithmetic.
struct Float16 {
  uint16_t bits;

  // Rounds to nearest, ties to even; larger values become infinity; NaN stays NaN.
  static Float16 from(float value) noexcept {
    const uint32_t wide = detail::bits_of(value);
    const uint32_t sign = wide >> 16 & 0x8000U;
    const uint32_t magnitude = wide & 0x7fffffffU;
    uint32_t half = 0;
    if (magnitude > 0x7f800000U) {
      half = 0x7e00U;
    } else if (magnitude >= 0x47800000U) {  // 2^16: infinity in any rounding
      half = 0x7c00U;
    } else if (magnitude >= 0x38800000U) {  // 2^-14: the smallest normal
      // The exponent's bias goes from 127 to 15; a carry out of the fraction is right as it is.
      half = (magnitude - 0x38000000U + 0xfffU + (magnitude >> 13 & 1U)) >> 13;
    } else {
      // Adding 0.5 leaves the subnormal's fraction, rounded by the processor, in the low bits.
      half = detail::bits_of(detail::float_of(magnitude) + 0.5F) - 0x3f000000U;
    }
    return {static_cast<uint16_t>(sign | half)};
  }
  explicit operator float() const noexcept {
    const uint32_t sign = (bits & 0x8000U) << 16;
    const uint32_t magnitude = bits & 0x7fffU;
    if (magnitude >= 0x7c00U)
      return detail::float_of(sign | 0x7f800000U | (magnitude & 0x3ffU) << 13);
    if (magnitude >= 0x400U) return detail::float_of(sign | ((magnitude << 13) + 0x38000000U));
    const float tiny = static_cast<float>(magnitude) * 0x1p-24F;
    return sign != 0 ? -tiny : tiny;
  }
};

// The dtype of a C++ type. Specialize it for a type of your own with the same bits, such as
// Eigen::half: `template <> struct meron::DTypeOf<T> { static constexpr DType value = ...; };`
template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<BFloat16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct DTypeOf<Float16> {
  static constexpr DType value = DType::f16;
};
#if defined(__STDCPP_FLOAT32_T__)  // the types of <stdfloat>, by their literals
template <>
struct DTypeOf<decltype(0.0f32)> {
  static constexpr DType value = DType::f32;
};
#endif
#if defined(__STDCPP_BFLOAT16_T__)
template <>
struct DTypeOf<decltype(0.0bf16)> {
  static constexpr DType value = DType::bf16;
};
#endif
#if defined(__STDCPP_FLOAT16_T__)
template <>
struct DTypeOf<decltype(0.0f16)> {
  static constexpr DType value = DType::f16;
};
#endif
template <class T>
inline constexpr DType dtype_of = DTypeOf<std::remove_cv_t<T>>::value;

// A tensor, or this rank's shard of one, in memory of the library; read-only.
class View {
 public:
  explicit View(const meron_view& raw) noexcept : raw_(raw) {}

  const meron_view& raw() const noexcept { return raw_; }
  DType dtype() const noexcept { return static_cast<DType>(raw_.dtype); }
  size_t size() const noexcept { return static_cast<size_t>(raw_.count); }  // elements
  size_t size_bytes() const noexcept { return size() * size_of(dtype()); }
  // Index of the first element in the full tensor, row-major.
  uint64_t offset() const noexcept { return raw_.offset; }
  // The number of the device that owns the memory, or MERON_DEVICE_HOST.
  int32_t device() const noexcept { return raw_.device; }
  const void* data() const noexcept { return raw_.data; }

  // The elements, const. To write values, write through an update or use a GatherCopy. Throws
  // MERON_E_ARGUMENT if T is not of the view's dtype.
  template <class T>
  Span<const T> as() const {
    return elements<const T>();
  }

 protected:
  template <class T>
  Span<T> elements() const {
    if (dtype_of<T> != dtype()) {
      detail::raise(Error(MERON_E_ARGUMENT, "a view was read as another type than its dtype",
                          "dtype", "Ask the view for its dtype, and read it as that type."));
    }
    return {static_cast<T*>(raw_.data), size()};
  }

 private:
  meron_view raw_;
};

// The same, writable.
class MutableView : public View {
 public:
  using View::View;

  void* data() const noexcept { return raw().data; }
  // The elements; const if T is. Throws MERON_E_ARGUMENT if T is not of the view's dtype, and, for
  // a T that is not const, MERON_E_STATE for the master of an f32 param, which is the param itself.
  template <class T>
  Span<T> as() const {
    if (!std::is_const_v<T> && raw().writable == 0) {
      detail::raise(Error(MERON_E_STATE, "read-only memory was asked for writable elements", "view",
                          "Read it as a const type, or write the param through an update."));
    }
    return elements<T>();
  }
};

}  // namespace MERON_CPP_NAMESPACE
}  // namespace meron

#endif  // MERON_CPP_DTYPE_HPP

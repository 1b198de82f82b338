// SPDX-License-Identifier: Apache-2.0
// meron/cpp/shape.hpp: the shape of a tensor as an argument.
#ifndef MERON_CPP_SHAPE_HPP
#define MERON_CPP_SHAPE_HPP

#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <type_traits>
#include <utility>

#include "meron/cpp/config.hpp"
#include "meron/param.h"

namespace meron {
inline namespace MERON_CPP_NAMESPACE {

// A size of a shape, of any integer type. Context::param refuses one of 2^63 or more, which is
// negative here.
class Dim {
 public:
  template <class Integer,
            class = std::enable_if_t<std::is_integral_v<Integer> && !std::is_same_v<Integer, bool>>>
  constexpr Dim(Integer size) noexcept : size_(static_cast<int64_t>(size)) {}
  constexpr int64_t size() const noexcept { return size_; }

 private:
  int64_t size_;
};

// A shape, row-major: a list in braces or a range of integers. Empty: a scalar. It keeps a copy.
class Shape {
 public:
  Shape() noexcept = default;
  Shape(std::initializer_list<Dim> sizes) noexcept { add_all(sizes); }
  template <class Range, class = std::enable_if_t<std::is_convertible_v<
                             decltype(*std::begin(std::declval<const Range&>())), Dim>>>
  Shape(const Range& sizes) {
    add_all(sizes);
  }

  // The first MERON_MAX_DIMS of them.
  const int64_t* data() const noexcept { return sizes_; }
  // All of them. Context::param refuses more than MERON_MAX_DIMS.
  uint32_t dims() const noexcept { return dims_; }

 private:
  template <class Range>
  void add_all(const Range& sizes) {
    for (const Dim size : sizes) {
      if (dims_ < MERON_MAX_DIMS) sizes_[dims_] = size.size();
      ++dims_;
    }
  }

  int64_t sizes_[MERON_MAX_DIMS] = {};
  uint32_t dims_ = 0;
};

}  // namespace MERON_CPP_NAMESPACE
}  // namespace meron

#endif  // MERON_CPP_SHAPE_HPP

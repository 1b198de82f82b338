// SPDX-License-Identifier: Apache-2.0
// meron/cpp/span.hpp: memory as an argument or a result.
#ifndef MERON_CPP_SPAN_HPP
#define MERON_CPP_SPAN_HPP

#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <type_traits>
#include <utility>

#include "meron/cpp/config.hpp"

#if defined(__has_include) && __cplusplus >= 202002L
#if __has_include(<span>)
#include <span>
#endif
#endif

namespace meron {
inline namespace MERON_CPP_NAMESPACE {
namespace detail {

template <class Memory>
using Plain = std::remove_cv_t<std::remove_reference_t<Memory>>;

// The type of the elements, const if they are. A range has std::data and std::size: std::vector,
// std::array, std::string, std::span, a Span, an array. Anything else but a pointer is one element.
template <class Memory, class = void>
struct Elements {
  using Type = std::remove_reference_t<Memory>;
  static constexpr bool is_range = false;
  static constexpr bool is_memory = !std::is_pointer_v<Plain<Memory>>;
};
template <class Memory>
struct Elements<Memory, std::void_t<decltype(std::data(std::declval<Memory&>())),
                                    decltype(std::size(std::declval<Memory&>()))>> {
  using Type = std::remove_pointer_t<decltype(std::data(std::declval<Memory&>()))>;
  static constexpr bool is_range = true;
  static constexpr bool is_memory = true;
};
template <class Memory>
using ElementOf = typename Elements<Memory>::Type;

// True for a range that owns nothing, such as a Span, std::span or std::string_view. If an owner is
// const, its elements are; a view's are not.
template <class Range, bool = Elements<Range>::is_range>
constexpr bool kIsView = false;
template <class Range>
constexpr bool kIsView<Range, true> = std::is_trivially_destructible_v<Range>&&
    std::is_same_v<ElementOf<Plain<Range>>, ElementOf<const Plain<Range>>>;
template <class T>
constexpr bool kIsView<std::initializer_list<T>, true> = false;
template <class T>
constexpr bool kIsView<const std::initializer_list<T>, true> = false;

// For arguments that are read during the call: all memory. A pointer has no size, so it is none.
template <class Memory>
using Readable = std::enable_if_t<Elements<Memory>::is_memory, int>;
// For arguments whose memory is used after the expression: Lasting for an object with a name, and
// for a view. Temporary for all others, which the functions refuse.
template <class Memory>
constexpr bool kLasts = Elements<Memory>::is_memory &&
                        (std::is_lvalue_reference_v<Memory> || kIsView<Memory>);
template <class Memory>
using Lasting = std::enable_if_t<kLasts<Memory>, int>;
template <class Memory>
using Temporary = std::enable_if_t<Elements<Memory>::is_memory && !kLasts<Memory>, int>;

}  // namespace detail

// A contiguous sequence in memory that it does not own.
template <class T>
class Span {
 public:
  using element_type = T;
  using value_type = std::remove_cv_t<T>;

  constexpr Span() noexcept = default;
  constexpr Span(T* data, size_t size) noexcept : data_(data), size_(size) {}
  template <size_t N>
  constexpr Span(T (&array)[N]) noexcept : data_(array), size_(N) {}
  template <class U, size_t N>
  Span(U (&&)[N]) = delete;  // a list in braces: the span would outlive it
  // From an object with data() and size() that outlives the span, or from another kind of span.
  template <
      class Range, detail::Lasting<Range> = 0,
      class = std::enable_if_t<detail::Elements<Range>::is_range &&
                               !std::is_array_v<std::remove_reference_t<Range>> &&
                               !std::is_same_v<detail::Plain<Range>, Span> &&
                               std::is_convertible_v<detail::ElementOf<Range> (*)[], T (*)[]>>>
  constexpr Span(Range&& range) noexcept : data_(std::data(range)), size_(std::size(range)) {}

  constexpr T* data() const noexcept { return data_; }
  constexpr size_t size() const noexcept { return size_; }
  constexpr size_t size_bytes() const noexcept { return size_ * sizeof(T); }
  constexpr bool empty() const noexcept { return size_ == 0; }
  constexpr T* begin() const noexcept { return data_; }
  constexpr T* end() const noexcept { return data_ + size_; }
  constexpr T& operator[](size_t i) const noexcept { return data_[i]; }  // i < size()

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

namespace detail {

// The memory of an argument: of a range, or of one element.
template <class Memory>
constexpr Span<ElementOf<Memory>> memory_of(Memory&& memory) noexcept {
  if constexpr (Elements<Memory>::is_range) {
    return {std::data(memory), std::size(memory)};
  } else {
    return {&memory, 1};
  }
}

}  // namespace detail
}  // namespace MERON_CPP_NAMESPACE
}  // namespace meron

#if defined(__cpp_lib_span)
// A Span converts to std::span, also one that a function has returned.
template <class T>
inline constexpr bool std::ranges::enable_borrowed_range<meron::Span<T>> = true;
template <class T>
inline constexpr bool std::ranges::enable_view<meron::Span<T>> = true;
#endif

#endif  // MERON_CPP_SPAN_HPP

// SPDX-License-Identifier: Apache-2.0
// meron/cpp/base.hpp: owners of handles and texts, types of arguments, and the library's version.
#ifndef MERON_CPP_BASE_HPP
#define MERON_CPP_BASE_HPP

#include <chrono>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "meron/cpp/error.hpp"

namespace meron {
inline namespace v1 {

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
  // From any object with data() and size() that outlives the span: std::vector, std::array, a Span.
  template <class Range,
            class = std::enable_if_t<std::is_convertible_v<
                std::remove_pointer_t<decltype(std::declval<Range&>().data())> (*)[], T (*)[]>>>
  constexpr Span(Range& range) noexcept : data_(range.data()), size_(range.size()) {}

  constexpr T* data() const noexcept { return data_; }
  constexpr size_t size() const noexcept { return size_; }
  constexpr size_t size_bytes() const noexcept { return size_ * sizeof(T); }
  constexpr bool empty() const noexcept { return size_ == 0; }
  constexpr T* begin() const noexcept { return data_; }
  constexpr T* end() const noexcept { return data_ + size_; }
  constexpr T& operator[](size_t i) const noexcept { return data_[i]; }  // i < size()

  // The same memory, read-only.
  constexpr operator Span<const T>() const noexcept { return {data_, size_}; }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

// A NUL-terminated text as an argument of a call. It makes no copy, so it lives as long as its
// source. Throws MERON_E_ARGUMENT for a std::string with a NUL byte inside.
class Text {
 public:
  Text(const char* text) noexcept : text_(text) {}
  Text(const std::string& text) : text_(text.c_str()) {
    if (text.find('\0') != std::string::npos) {
      throw Error(MERON_E_ARGUMENT, "a text that was passed to Meron holds a NUL byte", "text",
                  "Pass text without NUL bytes.");
    }
  }
  const char* c_str() const noexcept { return text_; }

 private:
  const char* text_;
};

// A text that the library returned. NUL-terminated; moves only.
class String {
 public:
  String() noexcept = default;
  explicit String(char* text) noexcept : text_(text) {}  // takes ownership
  String(String&& other) noexcept : text_(std::exchange(other.text_, nullptr)) {}
  String& operator=(String&& other) noexcept {
    std::swap(text_, other.text_);
    return *this;
  }
  ~String() { meron_string_free(text_); }

  const char* c_str() const noexcept { return text_ != nullptr ? text_ : ""; }
  std::string_view view() const noexcept { return c_str(); }
  operator std::string_view() const noexcept { return view(); }

 private:
  char* text_ = nullptr;
};

// Owns a handle; the base of all objects. If the release in a destructor fails, there is nothing to
// release: the object was closed with its context, or this process is a fork.
template <class RawHandle, meron_status (*Release)(RawHandle, meron_error**)>
class Handle {
 public:
  using Raw = RawHandle;

  Handle() noexcept = default;
  explicit Handle(Raw raw) noexcept : raw_(raw) {}
  Handle(Handle&& other) noexcept : raw_(other.detach()) {}
  Handle& operator=(Handle&& other) noexcept {
    if (this != &other) {
      reset();
      raw_ = other.detach();
    }
    return *this;
  }
  ~Handle() { reset(); }

  Raw handle() const noexcept { return raw_; }
  // True if it holds a handle, stale or not.
  explicit operator bool() const noexcept { return raw_.id != 0; }
  // Releases the handle now.
  void reset() noexcept {
    if (raw_.id != 0) static_cast<void>(Release(detach(), nullptr));
  }
  // Returns the handle, and drops it: the caller releases it.
  Raw detach() noexcept { return std::exchange(raw_, Raw{}); }

 private:
  Raw raw_{};
};

// Objects as an argument: one, a list in braces, or a range of objects, pointers to them or
// std::reference_wrappers. Lives only during a call.
template <class Object>
class ListOf {
 public:
  using Raw = typename Object::Raw;

  ListOf(const Object& one) { add(one); }
  ListOf(std::initializer_list<std::reference_wrapper<const Object>> some) { add_all(some); }
  template <class Range, class = decltype(std::begin(std::declval<const Range&>()))>
  ListOf(const Range& range) {
    add_all(range);
  }
  ListOf(const ListOf&) = delete;
  ListOf& operator=(const ListOf&) = delete;

  const Raw* data() const noexcept { return many_.empty() ? few_ : many_.data(); }
  size_t size() const noexcept { return size_; }

 private:
  static constexpr size_t kFew = 8;  // as many as need no memory from the heap

  template <class Range>
  void add_all(const Range& range) {
    for (const auto& item : range) add(item);
  }
  void add(const Object& object) { add_raw(object.handle()); }
  void add(const Object* object) { add_raw(object != nullptr ? object->handle() : Raw{}); }
  void add(std::reference_wrapper<const Object> object) { add_raw(object.get().handle()); }
  void add(std::reference_wrapper<Object> object) { add_raw(object.get().handle()); }
  void add_raw(Raw raw) {
    if (size_ < kFew) {
      few_[size_++] = raw;
      return;
    }
    try {
      if (many_.empty()) many_.assign(few_, few_ + kFew);
      many_.push_back(raw);
    } catch (const std::bad_alloc&) {
      detail::raise_no_memory();
    }
    ++size_;
  }

  Raw few_[kFew] = {};
  std::vector<Raw> many_;
  size_t size_ = 0;
};

namespace detail {

// A duration as a timeout. Negative ones poll, and do not wait.
inline int64_t timeout(std::chrono::nanoseconds duration) noexcept {
  return duration.count() > 0 ? duration.count() : 0;
}

}  // namespace detail

// The library's version in the form of MERON_VERSION.
inline uint32_t version() noexcept {
  return meron_version();
}
// The library's version as text; static.
inline const char* version_string() noexcept {
  return meron_version_string();
}
// Describes this host and this build, as JSON.
inline String system_info() {
  return String(detail::receive(meron_system_info));
}

}  // namespace v1
}  // namespace meron

#endif  // MERON_CPP_BASE_HPP

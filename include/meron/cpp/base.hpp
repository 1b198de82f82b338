// SPDX-License-Identifier: Apache-2.0
// meron/cpp/base.hpp: owners of handles, lists of objects as arguments, and the library's version.
#ifndef MERON_CPP_BASE_HPP
#define MERON_CPP_BASE_HPP

#include <chrono>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <utility>
#include <vector>

#include "meron/cpp/error.hpp"
#include "meron/cpp/span.hpp"
#include "meron/cpp/text.hpp"

namespace meron {
inline namespace MERON_CPP_NAMESPACE {

// Owns a handle; the base of all objects. If the release in a destructor fails, there is nothing to
// release: the object was closed with its context, or this process is a fork.
template <class RawHandle, meron_status (*Release)(RawHandle, meron_error**)>
class Handle {
 public:
  using Raw = RawHandle;

  // Takes ownership: the destructor releases the handle.
  Handle(Adopt, Raw raw) noexcept : raw_(raw) {}

  Raw handle() const noexcept { return raw_; }
  // True if it holds a handle, stale or not.
  explicit operator bool() const noexcept { return raw_.id != 0; }
  // Releases the handle now.
  void reset() noexcept {
    if (raw_.id != 0) static_cast<void>(Release(detach(), nullptr));
  }
  // Returns the handle, and drops it: the caller releases it.
  Raw detach() noexcept { return std::exchange(raw_, Raw{}); }

  // True if both hold the same handle, or none.
  friend bool operator==(const Handle& a, const Handle& b) noexcept {
    return a.raw_.id == b.raw_.id;
  }
  friend bool operator!=(const Handle& a, const Handle& b) noexcept { return !(a == b); }

 protected:  // an object is not cut down to its handle, which would lose its other functions
  Handle() noexcept = default;
  Handle(Handle&& other) noexcept : raw_(other.detach()) {}
  Handle& operator=(Handle&& other) noexcept {
    if (this != &other) {
      reset();
      raw_ = other.detach();
    }
    return *this;
  }
  ~Handle() { reset(); }

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
    detail::with_memory([&] {
      if (many_.empty()) many_.assign(few_, few_ + kFew);
      many_.push_back(raw);
    });
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
  return String(adopt, detail::receive(meron_system_info));
}

// For std::hash of an object: of its handle.
namespace detail {

struct HandleHash {
  template <class Object>
  size_t operator()(const Object& object) const noexcept {
    return std::hash<uint64_t>()(object.handle().id);
  }
};

}  // namespace detail
}  // namespace MERON_CPP_NAMESPACE
}  // namespace meron

#endif  // MERON_CPP_BASE_HPP

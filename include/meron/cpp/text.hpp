// SPDX-License-Identifier: Apache-2.0
// meron/cpp/text.hpp: texts as arguments and as results.
#ifndef MERON_CPP_TEXT_HPP
#define MERON_CPP_TEXT_HPP

#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "meron/cpp/error.hpp"

namespace meron {
inline namespace MERON_CPP_NAMESPACE {
namespace detail {

// The same text, as the C interface takes it. Throws MERON_E_ARGUMENT if it holds a NUL byte.
inline const char* c_text(const std::string& text) {
  if (text.find('\0') != std::string::npos) {
    raise(Error(MERON_E_ARGUMENT, "a text that was passed to Meron holds a NUL byte", "text",
                "Pass text without NUL bytes."));
  }
  return text.c_str();
}
// The same for a text of options: empty for none.
inline const char* optional_text(const std::string& text) {
  return text.empty() ? nullptr : c_text(text);
}

}  // namespace detail

// The type of arguments that are text: a literal, std::string, std::string_view or
// std::filesystem::path. Throws MERON_E_ARGUMENT if it holds a NUL byte. Where the function says
// so, null is allowed.
class Text {
 public:
  Text(const char* text) noexcept : text_(text) {}
  Text(std::string_view text) : copy_(copied(text)), text_(detail::c_text(copy_)) {}
  Text(const std::string& text) : Text(std::string_view(text)) {}
  template <class Path, class = std::enable_if_t<std::is_same_v<
                            decltype(std::declval<const Path&>().native()), const std::string&>>>
  Text(const Path& path) : Text(std::string_view(path.native())) {}
  explicit Text(std::string&&) = delete;  // a Text is an argument, and has no use as a variable
  Text(const Text&) = delete;
  Text& operator=(const Text&) = delete;

  const char* c_str() const noexcept { return text_; }

 private:
  static std::string copied(std::string_view text) {
    return detail::with_memory([&] { return std::string(text); });
  }

  std::string copy_;
  const char* text_;
};

// A text that the library returned. NUL-terminated; moves only. A temporary one, which a function
// has just returned, has only str() and <<: what the others return would outlive it.
class String {
 public:
  String() noexcept = default;
  String(Adopt, char* text) noexcept : text_(text) {}
  String(String&& other) noexcept : text_(std::exchange(other.text_, nullptr)) {}
  String& operator=(String&& other) noexcept {
    std::swap(text_, other.text_);
    return *this;
  }
  ~String() { meron_string_free(text_); }

  // A copy.
  std::string str() const {
    return detail::with_memory([&] { return std::string(get()); });
  }
  const char* c_str() const& noexcept { return get(); }
  const char* c_str() const&& = delete;
  std::string_view view() const& noexcept { return get(); }
  std::string_view view() const&& = delete;
  operator std::string_view() const& noexcept { return get(); }
  operator std::string_view() const&& = delete;

  template <class Stream>
  friend Stream& operator<<(Stream& out, const String& text) {
    out << text.get();
    return out;
  }

 private:
  const char* get() const noexcept { return text_ != nullptr ? text_ : ""; }

  char* text_ = nullptr;
};

}  // namespace MERON_CPP_NAMESPACE
}  // namespace meron

#endif  // MERON_CPP_TEXT_HPP

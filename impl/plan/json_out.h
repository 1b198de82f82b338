// SPDX-License-Identifier: Apache-2.0
// A JSON value that is printed, kept as its text. Its destructor allocates nothing. (That of
// nlohmann's tree allocates a stack, so it ends the process where no memory is left.)
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "base/human_bytes.h"

namespace meron {

class JsonOut {
 public:
  using Member = std::pair<std::string_view, JsonOut>;

  JsonOut(std::same_as<bool> auto value) : text_(value ? "true" : "false") {}  // NOLINT: by design
  template <std::integral T>
  requires(!std::same_as<T, bool>) JsonOut(T value)
      : text_(std::to_string(value)) {}  // NOLINT: by design
  // The shortest text that is read as the same number.
  JsonOut(double value);                                                   // NOLINT: by design
  JsonOut(std::string_view value);                                         // NOLINT: by design
  JsonOut(const char* value) : JsonOut(std::string_view(value)) {}         // NOLINT: by design
  JsonOut(const std::string& value) : JsonOut(std::string_view(value)) {}  // NOLINT: by design

  static JsonOut object(std::initializer_list<Member> members = {});
  static JsonOut array(std::initializer_list<JsonOut> elements = {});
  // `json`: compact JSON text, as dump(-1) returns it.
  static JsonOut of_text(std::string json);

  // Adds a member to an object that does not have the key.
  JsonOut& add(std::string_view key, const JsonOut& value);
  // Adds the members of another object.
  JsonOut& add_members(const JsonOut& object);
  // Adds an element to an array.
  JsonOut& push(const JsonOut& element);

  // Text as JSON, with lines indented by `indent` spaces per level; below 0: compact, in one line.
  std::string dump(int indent) const;

 private:
  JsonOut() = default;
  void append(std::string_view text);

  std::string text_;
};

// A number of bytes, as predictions and estimates print it.
inline JsonOut bytes_json(uint64_t value) {
  return JsonOut::object({{"bytes", value}, {"human", human_bytes(value)}});
}

}  // namespace meron

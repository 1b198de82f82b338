// SPDX-License-Identifier: Apache-2.0
// JSON text read into a tree whose values know their position, so that an error about a value can
// name its line and its key. Internal to the engine. The parser proper is nlohmann's.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace meron {

enum class JsonKind : uint8_t { null, boolean, count, number, string, object, array };

class JsonText;

// A value of a JsonText: two words, valid as long as the text is.
class JsonValue {
 public:
  // The value, or an error if it has another type.
  Result<std::string_view> string() const;
  Result<bool> boolean() const;
  // A whole number in [min, max]; 7e9 is one.
  Result<uint64_t> count(uint64_t min, uint64_t max) const;
  Result<double> number() const;
  Status array() const;
  Status object() const;
  // An object that has no keys but these.
  Status object(std::initializer_list<std::string_view> known_keys) const;

  // Of an object; null if this is none.
  std::optional<JsonValue> find(std::string_view key) const;
  Result<JsonValue> require(std::string_view key) const;

  // An object as compact text: without the white space outside of its strings, otherwise as it was
  // written, numbers and escapes included.
  Result<std::string> object_text() const;

  // Of a member's value.
  std::string_view key() const;

  // The first element or member value, and the one after this among its siblings.
  std::optional<JsonValue> first() const;
  std::optional<JsonValue> next() const;

  // `line 3, key "gradient.dtype": <what>`, about the subject of the text.
  Error error(meron_status code, std::string_view what, std::string advice = {}) const;
  // The same of a member, with the line of its key rather than that of its value.
  Error key_error(std::string_view what, std::string advice) const;

 private:
  friend class JsonText;
  JsonValue(const JsonText* text, uint32_t node) : text_(text), node_(node) {}

  Error error_at(uint32_t node, meron_status code, std::string_view what, std::string advice) const;
  Error wrong_type(std::string_view wanted) const;
  std::string path() const;

  const JsonText* text_;
  uint32_t node_;
};

class JsonText {
 public:
  struct Limits {
    size_t bytes;  // below 4 GiB
    uint32_t depth;
  };

  // `subject` is what errors are about, for example "plan". `text` must outlive the result.
  static Result<JsonText> parse(std::string_view text, std::string subject, Limits limits);

  JsonValue root() const { return {this, 0}; }

 private:
  friend class JsonValue;
  class Builder;

  static constexpr uint32_t kNoParent = UINT32_MAX;

  // The tree in the order of the text; a node's subtree is [node, end). A member's value follows
  // the node of its key, which is a string and no value itself.
  struct Node {
    uint64_t payload;  // boolean, count; bits of a number; strings: begin << 32 | size in strings_
    uint32_t offset;   // of the token's last byte in the text
    uint32_t parent;
    uint32_t end;
    JsonKind kind;
  };

  JsonText(std::string_view text, std::string subject)
      : text_(text), subject_(std::move(subject)) {}
  std::string_view string_at(uint32_t node) const;

  std::string_view text_;
  std::string subject_;
  std::string strings_;
  std::vector<Node> nodes_;
};

// `text` as a JSON string, in quotes. Bytes that are not UTF-8 are replaced.
std::string json_string(std::string_view text);

// The line of text[offset], from 1. `offset` may be the text's size.
size_t text_line(std::string_view text, size_t offset);

// "line 2, column 7": the position of the byte text[offset]. Columns count characters.
std::string text_position(std::string_view text, size_t offset);

// The error for nlohmann's SAX event parse_error(position, last_token, exception):
// `line 2, column 7: malformed JSON: unexpected '}'; expected string literal`.
Error malformed_json(std::string_view text, size_t position, const std::string& last_token,
                     std::string_view exception_text);

}  // namespace meron

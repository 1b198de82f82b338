// SPDX-License-Identifier: Apache-2.0
// Reading the values of a JsonText.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>
#include <utility>

#include "plan/json_text.h"
#include "plan/text.h"

namespace meron {
namespace {

std::string_view describe(JsonKind kind) {
  switch (kind) {
    case JsonKind::null:
      return "null";
    case JsonKind::boolean:
      return "true or false";
    case JsonKind::count:
    case JsonKind::number:
      return "a number";
    case JsonKind::string:
      return "a string";
    case JsonKind::object:
      return "an object";
    case JsonKind::array:
      return "an array";
  }
  return "?";
}

}  // namespace

std::string JsonValue::path() const {
  const auto& nodes = text_->nodes_;
  std::vector<std::string> parts;
  for (uint32_t node = node_; nodes[node].parent != JsonText::kNoParent;
       node = nodes[node].parent) {
    const uint32_t parent = nodes[node].parent;
    if (nodes[parent].kind == JsonKind::object) {
      std::string key = in_quotes(text_->string_at(node - 1), 40);
      parts.push_back('.' + key.substr(1, key.size() - 2));
    } else {
      size_t index = 0;
      for (uint32_t sibling = parent + 1; sibling < node; sibling = nodes[sibling].end) ++index;
      parts.push_back(fmt::format("[{}]", index));
    }
  }
  std::string path;
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) path += *part;
  return path.starts_with('.') ? path.substr(1) : path;
}

Error JsonValue::error(meron_status code, std::string_view what, std::string advice) const {
  return error_at(node_, code, what, std::move(advice));
}

Error JsonValue::key_error(std::string_view what, std::string advice) const {
  return error_at(node_ - 1, MERON_E_PARSE, what, std::move(advice));
}

Error JsonValue::error_at(uint32_t node, meron_status code, std::string_view what,
                          std::string advice) const {
  const std::string where = path();
  std::string text = fmt::format("line {}", text_line(text_->text_, text_->nodes_[node].offset));
  if (!where.empty()) text += fmt::format(", key \"{}\"", where);
  return Error(code, fmt::format("{}: {}", text, what), std::move(advice)).on(text_->subject_);
}

Error JsonValue::wrong_type(std::string_view wanted) const {
  return error(MERON_E_PARSE,
               fmt::format("must be {}, not {}", wanted, describe(text_->nodes_[node_].kind)),
               "correct the value");
}

Result<std::string_view> JsonValue::string() const {
  if (text_->nodes_[node_].kind != JsonKind::string) return wrong_type("a string");
  return text_->string_at(node_);
}

Result<bool> JsonValue::boolean() const {
  const auto& node = text_->nodes_[node_];
  if (node.kind != JsonKind::boolean) return wrong_type("true or false");
  return node.payload != 0;
}

Result<uint64_t> JsonValue::count(uint64_t min, uint64_t max) const {
  constexpr double kExact = 9007199254740992.0;  // 2^53: below it a double holds every whole number
  const auto& node = text_->nodes_[node_];
  const auto refused = [&](const auto& value) {
    return error(MERON_E_PARSE,
                 fmt::format("must be a whole number from {} to {}, not {}", min, max, value),
                 "correct the value");
  };
  uint64_t value = node.payload;
  if (node.kind == JsonKind::number) {
    const auto number = std::bit_cast<double>(node.payload);
    if (!(number >= 0 && number <= kExact && std::floor(number) == number)) return refused(number);
    value = static_cast<uint64_t>(number);
  } else if (node.kind != JsonKind::count) {
    return wrong_type("a whole number");
  }
  if (value < min || value > max) return refused(value);
  return value;
}

Result<double> JsonValue::number() const {
  const auto& node = text_->nodes_[node_];
  if (node.kind == JsonKind::count) return static_cast<double>(node.payload);
  if (node.kind != JsonKind::number) return wrong_type("a number");
  return std::bit_cast<double>(node.payload);
}

Status JsonValue::array() const {
  if (text_->nodes_[node_].kind != JsonKind::array) return wrong_type("an array");
  return Ok{};
}

Status JsonValue::object() const {
  if (text_->nodes_[node_].kind != JsonKind::object) return wrong_type("an object");
  return Ok{};
}

Status JsonValue::object(std::initializer_list<std::string_view> known_keys) const {
  MERON_TRY(object());
  const std::span<const std::string_view> known(known_keys.begin(), known_keys.size());
  for (auto member = first(); member; member = member->next()) {
    const std::string_view key = text_->string_at(member->node_ - 1);
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      return member->key_error("unknown key", suggestion(key, "keys", known));
    }
  }
  return Ok{};
}

std::optional<JsonValue> JsonValue::find(std::string_view key) const {
  if (text_->nodes_[node_].kind != JsonKind::object) return std::nullopt;
  for (auto member = first(); member; member = member->next()) {
    if (text_->string_at(member->node_ - 1) == key) return member;
  }
  return std::nullopt;
}

Result<JsonValue> JsonValue::require(std::string_view key) const {
  if (const auto value = find(key)) return *value;
  return error(MERON_E_PARSE, fmt::format("the key \"{}\" is missing", key),
               fmt::format("add \"{}\"", key));
}

Result<std::string> JsonValue::object_text() const {
  MERON_TRY(object());
  // The text is valid JSON, so counting brackets outside of strings finds the end.
  std::string out;
  size_t depth = 0;
  bool in_string = false;
  for (size_t at = text_->nodes_[node_].offset; at < text_->text_.size(); ++at) {
    const char c = text_->text_[at];
    if (in_string) {
      out += c;
      if (c == '\\') out += text_->text_[++at];
      in_string = c != '"';
      continue;
    }
    if (c == ' ' || c == '\t' || c == '\n' || c == '\r') continue;
    out += c;
    in_string = c == '"';
    if (c == '{' || c == '[') ++depth;
    if ((c == '}' || c == ']') && --depth == 0) break;
  }
  return out;
}

std::string_view JsonValue::key() const {
  return text_->string_at(node_ - 1);
}

std::optional<JsonValue> JsonValue::first() const {
  const auto& node = text_->nodes_[node_];
  if (node.end == node_ + 1) return std::nullopt;
  return JsonValue(text_, node.kind == JsonKind::object ? node_ + 2 : node_ + 1);
}

std::optional<JsonValue> JsonValue::next() const {
  const auto& nodes = text_->nodes_;
  const auto& node = nodes[node_];
  if (node.parent == JsonText::kNoParent || node.end == nodes[node.parent].end) return std::nullopt;
  return JsonValue(text_, nodes[node.parent].kind == JsonKind::object ? node.end + 1 : node.end);
}

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
#include "plan/json_out.h"

#include <nlohmann/json.hpp>

#include "plan/json_text.h"

namespace meron {

JsonOut::JsonOut(double value) : text_(nlohmann::json(value).dump()) {}

JsonOut::JsonOut(std::string_view value) : text_(json_string(value)) {}

JsonOut JsonOut::object(std::initializer_list<Member> members) {
  JsonOut out;
  out.text_ = "{}";
  for (const auto& [key, value] : members) out.add(key, value);
  return out;
}

JsonOut JsonOut::array(std::initializer_list<JsonOut> elements) {
  JsonOut out;
  out.text_ = "[]";
  for (const JsonOut& element : elements) out.push(element);
  return out;
}

JsonOut JsonOut::of_text(std::string json) {
  JsonOut out;
  out.text_ = std::move(json);
  return out;
}

// Before the bracket that ends this value.
void JsonOut::append(std::string_view text) {
  const char end = text_.back();
  text_.pop_back();
  if (text_.size() > 1) text_ += ',';
  text_ += text;
  text_ += end;
}

JsonOut& JsonOut::add(std::string_view key, const JsonOut& value) {
  append(json_string(key) + ":" + value.text_);
  return *this;
}

JsonOut& JsonOut::add_members(const JsonOut& object) {
  const std::string_view all = object.text_;
  if (all.size() > 2) append(all.substr(1, all.size() - 2));
  return *this;
}

JsonOut& JsonOut::push(const JsonOut& element) {
  append(element.text_);
  return *this;
}

std::string JsonOut::dump(int indent) const {
  if (indent < 0) return text_;
  std::string out;
  size_t depth = 0;
  bool in_string = false;
  const auto new_line = [&] {
    out += '\n';
    out.append(depth * static_cast<size_t>(indent), ' ');
  };
  for (size_t i = 0; i < text_.size(); ++i) {
    const char c = text_[i];
    if (in_string) {
      out += c;
      if (c == '\\') out += text_[++i];
      if (c == '"') in_string = false;
      continue;
    }
    const bool opens = c == '{' || c == '[', closes = c == '}' || c == ']';
    const bool empty = opens && (text_[i + 1] == '}' || text_[i + 1] == ']');
    if (closes) {
      --depth;
      new_line();
    }
    out += c;
    if (empty) {
      out += text_[++i];
    } else if (opens) {
      ++depth;
      new_line();
    } else if (c == ',') {
      new_line();
    } else if (c == ':') {
      out += ' ';
    } else if (c == '"') {
      in_string = true;
    }
  }
  return out;
}

}  // namespace meron

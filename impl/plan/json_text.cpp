// SPDX-License-Identifier: Apache-2.0
#include "plan/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "plan/text.h"

namespace meron {
namespace {

// An iterator that records how far the parser has read: its events have no position.
class WatchedIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  WatchedIterator(const char* at, const char** seen) : at_(at), seen_(seen) {}
  const char& operator*() const { return *at_; }
  WatchedIterator& operator++() {
    *seen_ = ++at_;
    return *this;
  }
  bool operator==(const WatchedIterator& other) const { return at_ == other.at_; }
  bool operator!=(const WatchedIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** seen_;
};

}  // namespace

size_t text_line(std::string_view text, size_t offset) {
  const std::string_view before = text.substr(0, offset);
  return 1 + static_cast<size_t>(std::count(before.begin(), before.end(), '\n'));
}

std::string json_string(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string text_position(std::string_view text, size_t offset) {
  offset = std::min(offset, text.size());
  const size_t newline = offset == 0 ? std::string_view::npos : text.rfind('\n', offset - 1);
  const size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
  const std::string_view before = text.substr(line_begin, offset - line_begin);
  const auto characters = std::count_if(before.begin(), before.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  });
  return fmt::format("line {}, column {}", text_line(text, offset), characters + 1);
}

Error malformed_json(std::string_view text, size_t position, const std::string& last_token,
                     std::string_view exception_text) {
  // "[json.exception...] parse error at line 1, column 2: syntax error while parsing value -
  // unexpected
  // '}'; expected ...": only the reason is kept, the position is found anew.
  std::string_view reason = exception_text;
  if (const size_t dash = reason.find(" - "); dash != std::string_view::npos) {
    reason.remove_prefix(dash + 3);
  } else if (const size_t bracket = reason.find("] "); bracket != std::string_view::npos) {
    reason.remove_prefix(bracket + 2);
  }
  const size_t read = reason.find("; last read: ");
  const bool whole_token = read == std::string_view::npos;
  std::string shown = in_quotes(reason.substr(0, read), 200);
  shown = shown.substr(1, shown.size() - 2);

  // The last character read: one that fits nowhere, or the end of a misplaced token. The begin of
  // strings and numbers is known too. (After punctuation and words, `last_token` still holds the
  // token before them.)
  size_t offset = std::min(position, text.size() + 1);
  offset -= std::min<size_t>(offset, 1);
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  const bool string =
      last_token.size() > 1 && last_token.front() == '"' && last_token.back() == '"';
  const bool number = !last_token.empty() &&
                      (digit(last_token.front()) || last_token.front() == '-') &&
                      digit(last_token.back());
  if (whole_token && (string || number) && offset < text.size()) {
    offset -= std::min(offset, last_token.size() - 1);
  }
  return Error(MERON_E_PARSE,
               fmt::format("{}: malformed JSON: {}", text_position(text, offset), shown),
               "correct the text there");
}

// Receives the events of the parser. A handler returns false to stop, with the reason in `error_`.
class JsonText::Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  Builder(JsonText* out, const char* const* seen, uint32_t max_depth)
      : out_(out), seen_(seen), max_depth_(max_depth) {}

  bool null() override { return add(JsonKind::null, 0); }
  bool boolean(bool value) override { return add(JsonKind::boolean, value ? 1 : 0); }
  bool number_unsigned(number_unsigned_t value) override { return add(JsonKind::count, value); }
  bool number_integer(number_integer_t value) override {
    return number_float(static_cast<double>(value), {});
  }
  bool number_float(number_float_t value, const string_t&) override {
    return add(JsonKind::number, std::bit_cast<uint64_t>(value));
  }
  bool string(string_t& value) override { return add_string(value); }
  bool key(string_t& value) override { return add_string(value); }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return open(JsonKind::object); }
  bool start_array(size_t) override { return open(JsonKind::array); }
  bool end_object() override { return check_duplicates() && close(); }
  bool end_array() override { return close(); }
  bool parse_error(size_t position, const std::string& last_token,
                   const nlohmann::json::exception& exception) override {
    error_ = malformed_json(out_->text_, position, last_token, exception.what());
    return false;
  }

  std::optional<Error>& error() { return error_; }

 private:
  uint32_t size() const { return static_cast<uint32_t>(out_->nodes_.size()); }

  bool add(JsonKind kind, uint64_t payload) {
    // A number ends where the next character is seen, which may be a line break; that one still
    // belongs to the number's line.
    const auto read = static_cast<uint32_t>(*seen_ - out_->text_.data());
    out_->nodes_.push_back({.payload = payload,
                            .offset = read == 0 ? 0 : read - 1,
                            .parent = current_,
                            .end = size() + 1,
                            .kind = kind});
    return true;
  }

  bool add_string(const string_t& value) {
    const uint64_t begin = out_->strings_.size();
    out_->strings_ += value;
    return add(JsonKind::string, begin << 32 | value.size());
  }

  bool open(JsonKind kind) {
    add(kind, 0);
    if (depth_ == max_depth_) {
      error_ =
          JsonValue(out_, size() - 1)
              .error(MERON_E_PARSE, fmt::format("values are nested more than {} deep", max_depth_),
                     "no valid text needs that; correct the brackets");
      return false;
    }
    ++depth_;
    current_ = size() - 1;
    return true;
  }

  bool close() {
    Node& node = out_->nodes_[current_];
    node.end = size();
    current_ = node.parent;
    --depth_;
    return true;
  }

  // Of the object that ends now. The text might have been meant either way, so it is refused.
  bool check_duplicates() {
    std::vector<uint32_t> keys;
    for (uint32_t key = current_ + 1; key < size(); key = out_->nodes_[key + 1].end) {
      keys.push_back(key);
    }
    std::stable_sort(keys.begin(), keys.end(), [&](uint32_t a, uint32_t b) {
      return out_->string_at(a) < out_->string_at(b);
    });
    const auto twice = std::adjacent_find(keys.begin(), keys.end(), [&](uint32_t a, uint32_t b) {
      return out_->string_at(a) == out_->string_at(b);
    });
    if (twice == keys.end()) return true;
    const size_t first_line = text_line(out_->text_, out_->nodes_[twice[0]].offset);
    error_ = JsonValue(out_, twice[1] + 1)
                 .key_error(fmt::format("this key was already given in line {}", first_line),
                            "leave one of the two out");
    return false;
  }

  JsonText* out_;
  const char* const* seen_;
  uint32_t max_depth_;
  uint32_t depth_ = 0;
  uint32_t current_ = kNoParent;
  std::optional<Error> error_;
};

Result<JsonText> JsonText::parse(std::string_view text, std::string subject, Limits limits) {
  if (text.size() > limits.bytes) {
    return Error(MERON_E_PARSE,
                 fmt::format("the text has {} bytes, more than the limit of {}", text.size(),
                             limits.bytes),
                 "give the text itself, not the data it describes")
        .on(std::move(subject));
  }
  JsonText out(text, std::move(subject));
  const char* seen = text.data();
  Builder builder(&out, &seen, limits.depth);
  const WatchedIterator begin(text.data(), &seen);
  const WatchedIterator end(text.data() + text.size(), &seen);
  if (nlohmann::json::sax_parse(begin, end, &builder)) return out;
  if (!builder.error()) return Error(MERON_E_PARSE, "the text is not JSON").on(out.subject_);
  return std::move(*builder.error()).on(out.subject_);
}

std::string_view JsonText::string_at(uint32_t node) const {
  const uint64_t payload = nodes_[node].payload;
  return std::string_view(strings_).substr(payload >> 32, payload & UINT32_MAX);
}

}  // namespace meron

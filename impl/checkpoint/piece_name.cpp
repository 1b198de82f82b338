// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/piece_name.h"

#include <fmt/format.h>

#include <charconv>

#include "plan/text.h"
#include "plan/unit_layout.h"

namespace meron::checkpoint {
namespace {

// A decimal number as fmt writes it: no sign, no leading zeros.
template <class T>
std::optional<T> canonical_number(std::string_view text) {
  T value = 0;
  const char* const end = text.data() + text.size();
  if (text.empty() || (text.size() > 1 && text.front() == '0')) return std::nullopt;
  const auto [stop, failed] = std::from_chars(text.data(), end, value);
  if (failed != std::errc() || stop != end) return std::nullopt;
  return value;
}

// The range at the end of `text`, which it takes off.
std::optional<PieceName::Range> take_range(std::string_view& text) {
  if (!text.ends_with(']')) return std::nullopt;
  const size_t open = text.rfind('[');
  if (open == std::string_view::npos) return std::nullopt;
  const std::string_view inner = text.substr(open + 1, text.size() - open - 2);
  const size_t colon = inner.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const auto begin = canonical_number<uint64_t>(inner.substr(0, colon));
  const auto end = canonical_number<uint64_t>(inner.substr(colon + 1));
  if (!begin || !end || *begin > *end) return std::nullopt;
  text = text.substr(0, open);
  return PieceName::Range{*begin, *end};
}

// The text before the first colon, if that is a kind.
std::string_view kind_before_colon(std::string_view text) {
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos) return {};
  const std::string_view kind = text.substr(0, colon);
  return valid_kind(kind) ? kind : std::string_view{};
}

}  // namespace

bool valid_kind(std::string_view kind) {
  for (const std::string_view known :
       {"values", "master", "exp_avg", "exp_avg_sq", "gradient", "extra"}) {
    if (kind == known) return true;
  }
  if (constexpr std::string_view kState = "state."; kind.starts_with(kState)) {
    const std::string_view key = kind.substr(kState.size());
    return !key.empty() && key.size() <= kMaxStateKey &&
           key.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string_view::npos;
  }
  for (const std::string_view numbered : {"residual.", "extra."}) {
    if (!kind.starts_with(numbered)) continue;
    return canonical_number<uint32_t>(kind.substr(numbered.size())).has_value();
  }
  return false;
}

std::string piece_name(std::string_view kind, std::string_view name, uint64_t begin, uint64_t end,
                       bool complete) {
  // safetensors keeps one name for itself.
  const bool plain = kind == "values" && kind_before_colon(name).empty() && name != "__metadata__";
  std::string out = plain ? std::string(name) : fmt::format("{}:{}", kind, name);
  std::string_view rest = name;
  if (!complete || take_range(rest)) out += fmt::format("[{}:{}]", begin, end);
  return out;
}

PieceName parse_piece_name(std::string_view text) {
  PieceName out{.kind = "values", .name = {}, .range = take_range(text)};
  if (const std::string_view kind = kind_before_colon(text); !kind.empty()) {
    out.kind = kind;
    text.remove_prefix(kind.size() + 1);
  }
  out.name = text;
  return out;
}

Status check_file_name(std::string_view name) {
  const auto refused = [](std::string_view what) {
    return Error(MERON_E_ARGUMENT, fmt::format("the file name {}", what),
                 "use one component of a path, such as values-00000-of-00001.safetensors");
  };
  if (name.empty()) return refused("is empty");
  if (name.size() > kMaxFileName) {
    return refused(
        fmt::format("has {} bytes, more than the limit of {}", name.size(), kMaxFileName));
  }
  const std::string shown = in_quotes(name);
  if (!check_name(name)) return refused(fmt::format("{} is not printable UTF-8", shown));
  if (name.find_first_of("/\\") != std::string_view::npos) {
    return refused(fmt::format("{} has a slash", shown));
  }
  if (name.front() == '.') return refused(fmt::format("{} begins with a dot", shown));
  return Ok{};
}

}  // namespace meron::checkpoint

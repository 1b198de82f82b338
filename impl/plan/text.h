// SPDX-License-Identifier: Apache-2.0
// Helpers for text that people read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace meron {

bool valid_utf8(std::string_view text);

// `text` in double quotes, fit for a message: control characters and bytes that are not UTF-8 as
// \xNN, and cut with "..." after about `max_bytes`.
std::string in_quotes(std::string_view text, size_t max_bytes = 80);

// The candidate that `word` was probably meant to be: few edits away, ignoring case. Of equally
// close ones the last, so that "zero4" leads to "zero3" and not to "zero0".
std::optional<std::string_view> nearest(std::string_view word,
                                        std::span<const std::string_view> candidates);

// "did you mean "zero2"? Known presets: "zero0", "zero1"": advice for a word that is not one of
// `known`; the question is left out if nothing is close.
std::string suggestion(std::string_view word, std::string_view known_what,
                       std::span<const std::string_view> known);

}  // namespace meron

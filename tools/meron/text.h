// SPDX-License-Identifier: Apache-2.0
// Small things for people to read.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace meron::tools {

// "rank 3", "ranks 0-2 and 5". `ranks` ascend.
std::string rank_names(const std::vector<int>& ranks);

std::string readable_seconds(std::chrono::nanoseconds duration);  // "2.5 s"

// Rows as columns that are as wide as their widest cell: the first `left` columns flush left, the
// others flush right.
std::string in_columns(const std::vector<std::vector<std::string>>& rows, size_t left);

// The word of `known` that `word` was probably meant to be, by few edits; empty if none is near.
std::string nearest_word(const std::string& word, const std::vector<std::string>& known);

}  // namespace meron::tools

// SPDX-License-Identifier: Apache-2.0
#include "tools/meron/text.h"

#include <fmt/format.h>

#include <algorithm>

namespace meron::tools {

std::string rank_names(const std::vector<int>& ranks) {
  std::vector<std::string> runs;
  for (size_t first = 0; first < ranks.size();) {
    size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    runs.push_back(first == last ? fmt::format("{}", ranks[first])
                                 : fmt::format("{}-{}", ranks[first], ranks[last]));
    first = last + 1;
  }
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < runs.size(); ++i) {
    if (i > 0) text += i + 1 == runs.size() ? " and " : ", ";
    text += runs[i];
  }
  return text;
}

std::string readable_seconds(std::chrono::nanoseconds duration) {
  return fmt::format("{:.4g} s", std::chrono::duration<double>(duration).count());
}

std::string in_columns(const std::vector<std::vector<std::string>>& rows, size_t left) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const auto padding = std::string(widths[i] - row[i].size(), ' ');
      line += (i == 0 ? "" : "  ") + (i < left ? row[i] + padding : padding + row[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string nearest_word(const std::string& word, const std::vector<std::string>& known) {
  std::string best;
  size_t best_edits = word.size() / 3 + 1;  // more are another word
  for (const std::string& each : known) {
    std::vector<size_t> row(each.size() + 1), above(each.size() + 1);
    for (size_t j = 0; j <= each.size(); ++j) above[j] = j;
    for (size_t i = 1; i <= word.size(); ++i) {
      row[0] = i;
      for (size_t j = 1; j <= each.size(); ++j) {
        const size_t change = above[j - 1] + (word[i - 1] == each[j - 1] ? 0 : 1);
        row[j] = std::min({change, above[j] + 1, row[j - 1] + 1});
      }
      above.swap(row);
    }
    if (above.back() > best_edits || (above.back() == best_edits && !best.empty())) continue;
    best = each;
    best_edits = above.back();
  }
  return best;
}

}  // namespace meron::tools

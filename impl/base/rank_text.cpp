// SPDX-License-Identifier: Apache-2.0
#include "base/rank_text.h"

#include <cstddef>

namespace meron {

std::string ranks_text(std::span<const int> ranks) {
  constexpr size_t kShortestRange = 3;
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  for (size_t first = 0; first < ranks.size();) {
    size_t end = first + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    const bool range = end - first >= kShortestRange;
    if (!range) end = first + 1;
    text += first == 0 ? " " : ", ";
    text += std::to_string(ranks[first]);
    if (range) text.append("-").append(std::to_string(ranks[end - 1]));
    first = end;
  }
  return text;
}

}  // namespace meron

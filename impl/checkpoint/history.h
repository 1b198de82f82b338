// SPDX-License-Identifier: Apache-2.0
// Where a checkpoint comes from: history.json, beside its manifest. Checkpoints that were written
// without a run, or by an older version, have none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace meron::checkpoint {

inline constexpr std::string_view kHistoryFile = "history.json";
inline constexpr size_t kMaxHistory = 4096;  // bytes

struct History {
  std::string id;      // Manifest::id
  std::string parent;  // the id of the checkpoint that the run saved or loaded before; may be empty
  // Checkpoints that continue each other are a line. This is the id of the first one. A run that
  // returns to an older step begins another line. Empty: the line of those without a history.
  std::string lineage;
  uint64_t step = 0;      // Manifest::step
  uint64_t saved_ns = 0;  // since 1970

  bool operator==(const History&) const = default;
};

std::string to_json(const History& history);
// MERON_E_PARSE naming line and key. Keys that this version does not know are passed over.
Result<History> parse_history(std::string_view text);

}  // namespace meron::checkpoint

// SPDX-License-Identifier: Apache-2.0
#include "tools/meron/first_failure.h"

namespace meron::tools {

Cause first_failure(const std::vector<RankProcess>& ranks, const JobBoard& board, int first_ended) {
  Cause cause{first_ended, {}};
  std::vector<bool> seen(ranks.size());
  while (true) {
    seen[static_cast<size_t>(cause.rank)] = true;
    const auto blamed = board.blamed(cause.rank);
    if (!blamed) return cause;
    // They blame each other, as ranks do whose calls differ.
    if (seen[static_cast<size_t>(*blamed)]) return {first_ended, {}};
    const RankProcess& other = ranks[static_cast<size_t>(*blamed)];
    if (other.running) return {cause.rank, *blamed};
    if (other.wait_status == 0) return cause;
    cause.rank = *blamed;
  }
}

}  // namespace meron::tools

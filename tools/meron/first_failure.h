// SPDX-License-Identifier: Apache-2.0
// Which rank of a job failed first. Not always the one that ended first: a rank that raises closes
// its context, its peers' calls fail, and they may end while it still frees its memory.
#pragma once

#include <optional>
#include <vector>

#include "os/job_board.h"
#include "tools/meron/rank_process.h"

namespace meron::tools {

struct Cause {
  int rank = 0;  // has failed
  // The rank that it blames, if that has not ended: its end may show another cause.
  std::optional<int> waits_for;
};

// Follows the blame on the board from `first_ended`, a rank that has failed.
Cause first_failure(const std::vector<RankProcess>& ranks, const JobBoard& board, int first_ended);

}  // namespace meron::tools

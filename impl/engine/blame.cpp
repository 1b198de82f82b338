// SPDX-License-Identifier: Apache-2.0
#include "engine/blame.h"

#include <atomic>

#include "os/fork_guard.h"

namespace meron {
namespace {

// This process' rank among those of its launcher, once it has opened a world as such.
std::atomic<int> launched_rank{MERON_RANK_NONE};

}  // namespace

JobBoard* join_board(const Identity& identity) {
  if (identity.source != kMeronRun) return nullptr;
  JobBoard* const board = JobBoard::of_launcher();
  if (board == nullptr || board->ranks() != identity.world_size) return nullptr;
  board->clear_blame(identity.rank);
  launched_rank = identity.rank;
  return board;
}

void note_blame(const ErrorInfo& error) noexcept {
  const int rank = launched_rank;
  if (rank == MERON_RANK_NONE || error.peer < 0 || error.peer == rank || is_forked_child()) return;
  if (error.rank != MERON_RANK_NONE && error.rank != rank) return;  // of a world of its own
  JobBoard::of_launcher()->set_blamed(rank, error.peer);
}

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
// How ranks meet. Each function returns a Joined, or an error that names the missing rank.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "memory/arena.h"
#include "os/job_board.h"
#include "rendezvous/token.h"
#include "transport/transport.h"

namespace meron {

struct MeetingOptions {
  int rank = 0;
  int world_size = 1;
  // If only the ranks of a node meet here: the world ranks of those that meet, in a world of
  // `window_ranks`. Empty: the world meets.
  std::vector<int> names;
  int window_ranks = 0;
  uint64_t window_reserve = 0;  // see Window::create
  ArenaOptions arena;
  Deadline deadline;
  std::function<bool()> should_stop;  // may be empty; asked without locks held
  // Where the launcher notes which ranks of the world have ended; may be null.
  const JobBoard* board = nullptr;

  int named(int rank) const { return names.empty() ? rank : names[static_cast<size_t>(rank)]; }
  int ranks_in_window() const { return window_ranks == 0 ? world_size : window_ranks; }
};

// Period at which a waiting rank asks should_stop.
inline constexpr int64_t kMeetingSliceNs = 100 * kNanosPerMilli;

inline bool asked_to_stop(const MeetingOptions& options) {
  return options.should_stop && options.should_stop();
}
// An error if the launcher says that one of the missing ranks (by place in the meeting) has ended.
template <class Ranks>
Status check_launched(const MeetingOptions& options, const Ranks& missing) {
  if (options.board == nullptr) return Ok{};
  for (const int rank : missing) {
    if (!options.board->ended(options.named(rank))) continue;
    const int first = options.board->first_of(options.named(rank));
    return Error(MERON_E_PEER_DEAD,
                 "rank " + std::to_string(first) + " " + end_text(*options.board->ended(first)) +
                     " before the ranks met",
                 "see its output, and start all ranks again")
        .blaming(first);
  }
  return Ok{};
}
inline Error meeting_stopped() {
  return Error(MERON_E_CANCELLED, "should_stop asked the rank to stop waiting for the others",
               "open again when the ranks are to meet");
}

// A world of one rank.
Result<Joined> join_self(const MeetingOptions& options);

// Ranks that are threads of this process and give the same `job`.
Result<Joined> join_local(const MeetingOptions& options, const std::string& job);

// Ranks that are processes of this host and of one user. Rank 0 listens on a socket in the abstract
// namespace, named after the job: nothing of it is left in a file system. Each side checks the
// other's user by the kernel's credentials; rank 0 also checks the token. Window and arenas are
// passed as descriptors; the sockets are closed when all have met.
Result<Joined> join_shm(const MeetingOptions& options, const std::string& job, const Token& token);

// Ranks that reach each other by the caller's functions alone. Checks the table, then waits for
// every rank's first message.
Result<Joined> join_custom(const MeetingOptions& options, const meron_transport& table);

// The same, but local peers (node_identity() of os/host.h) share memory: the functions are used
// between nodes only.
Result<Joined> join_cluster(const MeetingOptions& options, const meron_transport& table);

// The world of MPI, as libmeron_mpi.so has it: who this process is there, and the functions for
// join_cluster(), which takes `table` over.
struct MpiWorld {
  int rank;
  int world_size;
  bool any_thread;      // its functions may be called by any thread, one at a time
  std::string library;  // what the MPI calls itself
  meron_transport table;
};
Result<MpiWorld> open_mpi();
// Why it cannot be opened.
Status mpi_available();

}  // namespace meron

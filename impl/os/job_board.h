// SPDX-License-Identifier: Apache-2.0
// How a launcher and the ranks of its job report failures to each other: shared memory with a slot
// per rank. The launcher makes it, and passes it as the descriptor MERON_BOARD_FD. A rank notes
// there whom an error blamed, so that the launcher can name the rank that failed first and not
// its victims; the launcher notes the ranks that have ended, which only it sees before the
// rendezvous.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "os/mapping.h"
#include "os/memory_file.h"

namespace meron {

class JobBoard {
 public:
  // The launcher's, for ranks 0 to ranks - 1.
  static Result<std::unique_ptr<JobBoard>> create(int ranks);
  // The board of the launcher that started this process. Null if there is none, or it does not fit
  // MERON_WORLD_SIZE. Looked up once.
  static JobBoard* of_launcher();

  // Close-on-exec.
  int fd() const { return file_.fd(); }
  int ranks() const { return ranks_; }

  // The launcher's notes. `wait_status`: as waitpid() gives it.
  void set_ended(int rank, int wait_status);
  std::optional<int> ended(int rank) const;

  // A rank's notes: an error named `peer` as its cause. The first one since clear_blame() holds.
  void set_blamed(int rank, int peer);
  void clear_blame(int rank);
  std::optional<int> blamed(int rank) const;
  // Follows the blames from `rank`, which has ended, to the ended rank that caused its end.
  int first_of(int rank) const;

 private:
  struct Header;
  struct Slot;

  JobBoard(MemoryFile file, Mapping mapping, int ranks)
      : file_(std::move(file)), mapping_(std::move(mapping)), ranks_(ranks) {}
  static Result<std::unique_ptr<JobBoard>> adopt(int fd, int ranks);
  Header& header() const;
  Slot* slot(int rank) const;

  MemoryFile file_;
  Mapping mapping_;
  int ranks_;
};

// "exited with code 3", "was killed by signal 9": of a wait status.
std::string end_text(int wait_status);

}  // namespace meron

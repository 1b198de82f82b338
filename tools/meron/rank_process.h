// SPDX-License-Identifier: Apache-2.0
// One rank of a job as a child process.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "tools/meron/unique_fd.h"

namespace meron::tools {

struct RankProcess {
  int rank = 0;
  pid_t pid = 0;
  bool running = true;
  int wait_status = 0;  // as waitpid() gives it, once not running
  // Read ends of what the rank prints, if it was captured.
  UniqueFd output;
  UniqueFd errors;
};

// Settings that all ranks of a job share.
struct RankCommand {
  std::vector<std::string> words;  // program and arguments
  int world_size = 1;
  std::string token;  // 64 hexadecimal digits
  int board_fd = -1;  // the job's board, see os/job_board.h
  bool capture_output = false;
  int master_port = 0;      // of ReservedPort
  sigset_t signal_mask;     // for the ranks; this process' own has more
  pid_t process_group = 0;  // that the ranks join
};

// 32 random bytes in hexadecimal.
std::string make_token();

// Starts a rank. It dies with this process, whatever ends it. Returns when the program runs; throws
// a Failure, with the exit code that a shell would give, when it cannot.
RankProcess start_rank(const RankCommand& command, int rank);

}  // namespace meron::tools

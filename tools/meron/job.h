// SPDX-License-Identifier: Apache-2.0
// A job: ranks on this host, from start to the end of the last one.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace meron::tools {

struct JobOptions {
  int ranks = 1;
  std::vector<std::string> command;
  // Time that the other ranks have to end by themselves after one has failed.
  std::chrono::nanoseconds grace = std::chrono::seconds(5);
  std::optional<std::chrono::nanoseconds> timeout;  // for the whole job
  bool tag = false;                                 // mark each line of output with its rank
};

// Runs the job and returns its exit code: 0 if all ranks ended well, that of the first one that did
// not otherwise. When it returns, no process of the job is left.
int run_job(const JobOptions& options);

}  // namespace meron::tools

// SPDX-License-Identifier: Apache-2.0
// Who this process is among the ranks: given by the caller, or found in the environment that a
// launcher set.
#pragma once

#include <string>

#include "base/result.h"

namespace meron {

struct Identity {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;  // among the ranks of this host
  int local_size = 1;
  std::string source;  // "arguments", "alone", or the launcher whose variables were read
};

inline constexpr int kMaxWorldSize = 4096;
// The `source` of ranks that `meron run` started.
inline constexpr const char* kMeronRun = "meron run";

// `rank` and `world_size` of -1 are looked up: meron run, torchrun, Open MPI, Slurm, MPICH, in this
// order; with no launcher at all this process is the only rank. Refuses half a pair, values that
// are no numbers, and a rank beyond the world.
Result<Identity> find_identity(int rank, int world_size);

// A name that distinguishes this job from others in the same place: `given`, else MERON_JOB, else
// the launcher's name of it (Slurm, torchrun, PBS, LSF), else "default". Valid as the name of a
// file.
Result<std::string> find_job(const std::string& given);

}  // namespace meron

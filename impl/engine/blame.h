// SPDX-License-Identifier: Apache-2.0
// Records the blame of errors on the launcher's board. If an error names another rank as its cause,
// `meron run` names that rank when the job fails.
#pragma once

#include "base/result.h"
#include "os/job_board.h"
#include "topology/identity.h"

namespace meron {

// Returns the launcher's board if the launcher gave this process `identity`, else null. This rank's
// errors are noted there from now on; notes of an earlier world are forgotten.
JobBoard* join_board(const Identity& identity);

// Called for every error that leaves the library. Does nothing for those that blame no rank.
void note_blame(const ErrorInfo& error) noexcept;

}  // namespace meron

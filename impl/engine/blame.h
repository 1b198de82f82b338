// SPDX-License-Identifier: Apache-2.0
// Which errors this process notes on its launcher's board: those that name another rank as their
// cause, so that `meron run` names that one when the job fails.
#pragma once

#include "base/result.h"
#include "os/job_board.h"
#include "topology/identity.h"

namespace meron {

// The board of the launcher if `identity` is what it gave this process; errors of this rank are
// noted there from now on, and what was noted of an earlier world is forgotten. Else null.
JobBoard* join_board(const Identity& identity);

// Called for every error that leaves the library. Does nothing for those that blame no rank.
void note_blame(const ErrorInfo& error) noexcept;

}  // namespace meron

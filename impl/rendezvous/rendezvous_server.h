// SPDX-License-Identifier: Apache-2.0
// Rank 0's side of the meeting of a host's processes.
#pragma once

#include <string>

#include "base/result.h"
#include "rendezvous/join.h"

namespace meron {

// Listens at `name` until all ranks have connected with the token, then sends each of them the
// window, and the arenas of all. An error is sent to those that have arrived, too.
Result<Joined> serve_rendezvous(const MeetingOptions& options, const std::string& name,
                                const Token& token);

}  // namespace meron

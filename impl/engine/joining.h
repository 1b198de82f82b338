// SPDX-License-Identifier: Apache-2.0
// Which transport a context gets, and how its ranks find each other for it.
#pragma once

#include "base/result.h"
#include "engine/open_options.h"
#include "rendezvous/join.h"
#include "topology/identity.h"

namespace meron {

struct Met {
  Joined joined;
  bool any_thread = false;  // the link may be pumped by a thread of the engine's own
  int local_size = 1;       // ranks of this host, as far as is known
};

Result<Met> join_world(const JoinOptions& options, const Identity& identity,
                       const MeetingOptions& meeting);

}  // namespace meron

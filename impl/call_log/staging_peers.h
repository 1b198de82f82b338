// SPDX-License-Identifier: Apache-2.0
// Which members of a group share memory, and who stages for whom between nodes: what a remote
// member has is staged by one member of each node for all of that node.
#pragma once

#include <vector>

#include "topology/members.h"
#include "transport/transport.h"

namespace meron {

// Members by their index in the group.
struct StagingPeers {
  StagingPeers(const Transport& transport, const Members& members);

  Link* link = nullptr;      // null where all members share memory
  std::vector<bool> local;   // by member: shares memory with this rank
  std::vector<int> exports;  // remote members that stage what this rank has
  std::vector<int> holders;  // by owner: who of this node stages it; the owner where it is local
};

}  // namespace meron

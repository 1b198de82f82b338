// SPDX-License-Identifier: Apache-2.0
#include "call_log/staging_peers.h"

#include <cstddef>
#include <cstdint>
#include <map>

#include "base/layout.h"

namespace meron {

StagingPeers::StagingPeers(const Transport& transport, const Members& members) {
  std::map<int, std::vector<int>> nodes;
  std::vector<uint64_t> positions;  // of each member in its node
  for (int m = 0; m < members.size(); ++m) {
    const int rank = members.world_rank(m);
    local.push_back(transport.is_local(rank));
    if (!local.back()) link = transport.link();
    auto& node = nodes[transport.node(rank)];
    positions.push_back(node.size());
    node.push_back(m);
  }
  const auto stager = [&](const std::vector<int>& node, int owner) {
    return node[importer_of(positions[static_cast<size_t>(owner)], node.size())];
  };
  const int home = transport.node(transport.rank());
  for (const auto& [number, node] : nodes) {
    if (number != home) exports.push_back(stager(node, members.index()));
  }
  for (int m = 0; m < members.size(); ++m) {
    holders.push_back(local[static_cast<size_t>(m)] ? m : stager(nodes.at(home), m));
  }
}

}  // namespace meron

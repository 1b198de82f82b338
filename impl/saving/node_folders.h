// SPDX-License-Identifier: Apache-2.0
// Checkpoints whose files are in folders of the nodes that saved them, each on its own disk.
// `nodes`: by rank, the number of its node. The lowest rank of a node leads it: it makes the
// directory of a save, and reads the node's files for all ranks in a load.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/directory.h"
#include "saving/exchange.h"

namespace meron {

bool leads_node(std::span<const int> nodes, int rank);
// By rank, the number of its node as manifests have it: from 0, in the order of first ranks.
std::vector<uint32_t> node_numbers(std::span<const int> nodes);

// True if a save may take the name: no node has files of it, or a dead host left some that do not
// make a complete checkpoint together. A checkpoint that one of them cannot read counts as taken.
// Collective.
Result<bool> name_is_free(Exchange& exchange, const std::string& root, const std::string& name,
                          std::span<const int> nodes);

struct NodeCheckpoint {
  checkpoint::Checkpoint checkpoint;  // `path` is that of this rank's folder
  std::vector<int> readers;           // by file of the manifest, the rank that has it
};

// Finds the checkpoint of that name, or the newest one whose files all exist in the ranks' folders
// together. Blocks on the drive and on all ranks; an error is every rank's. MERON_E_NOT_FOUND names
// the checkpoints that exist, and the nodes whose files are missing.
Result<NodeCheckpoint> find_on_nodes(Exchange& exchange, const std::string& root,
                                     const std::string& name, std::span<const int> nodes);

}  // namespace meron

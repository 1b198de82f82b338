// SPDX-License-Identifier: Apache-2.0
// Where the ranks of a save write, and how what they wrote becomes a checkpoint: in one folder that
// all see, or on each node in a folder of its own.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "base/result.h"
#include "checkpoint/commit.h"
#include "checkpoint/manifest.h"
#include "saving/exchange.h"
#include "saving/saver.h"

namespace meron {

class SaveFolder {
 public:
  // Receives what did not succeed after the commit and need not. May be empty.
  using Warn = std::function<void(const std::string&)>;

  // Makes the temporary directories, and waits until each rank sees its own. Every rank's, as
  // commit(): an error of one is that of all. `target` must stay.
  static Result<SaveFolder> begin(Exchange& exchange, const SaveTarget& target, Warn warn);

  const std::string& id() const { return id_; }  // Manifest::id
  // Where this rank writes.
  const std::string& directory() const { return directory_; }

  // `manifest`: rank 0's. With a folder per node the checkpoint is there once all nodes have given
  // it its name. If one cannot, all give the name back to the checkpoint that had it. If a host
  // dies meanwhile, some have it, and a load passes it over. Prunes.
  // `history`: of all ranks, the text of history.json, or empty for none.
  Status commit(Exchange& exchange, const Result<checkpoint::Manifest>& manifest,
                const std::string& history);

 private:
  SaveFolder(Exchange& exchange, const SaveTarget& target, Warn warn)
      : target_(&target), warn_(std::move(warn)), rank_(exchange.rank()) {}
  Status begin_shared(Exchange& exchange);
  Status begin_per_node(Exchange& exchange);
  bool made_by_another(const std::string& suffix) const;
  Status commit_shared(Exchange& exchange, const Result<checkpoint::Manifest>& manifest);
  Status commit_per_node(Exchange& exchange, const Result<checkpoint::Manifest>& manifest);
  void withdraw();
  Status write_history();
  void prune_and_warn(Exchange& exchange);

  const SaveTarget* target_;
  Warn warn_;
  int rank_;
  std::string id_, directory_;
  std::string history_;
  std::unique_ptr<checkpoint::Saving> saving_;  // null: of another rank
};

}  // namespace meron

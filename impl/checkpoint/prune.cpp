// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/prune.h"

#include <fmt/format.h>

#include <algorithm>

#include "checkpoint/directory.h"
#include "checkpoint/file_steps.h"
#include "checkpoint/root_lock.h"

namespace meron::checkpoint {
namespace {

// Those that prune() removes, oldest first.
std::vector<std::string> superfluous(const std::vector<Entry>& entries, size_t keep,
                                     const std::vector<std::string>& protect,
                                     const std::optional<std::string>& lineage = {}) {
  std::vector<std::string> names;
  size_t complete = 0;
  bool whole_state_kept = false;
  for (const Entry& entry : entries) {
    if (!entry.complete()) break;
    if (lineage && entry.history.lineage != *lineage) continue;
    ++complete;
    const bool newest_whole = entry.whole_state && !whole_state_kept;
    whole_state_kept = whole_state_kept || entry.whole_state;
    if (complete <= keep || newest_whole) continue;
    if (std::find(protect.begin(), protect.end(), entry.name) != protect.end()) continue;
    names.push_back(entry.name);
  }
  std::reverse(names.begin(), names.end());
  return names;
}

}  // namespace

Result<std::vector<std::string>> prune(const std::string& root, size_t keep,
                                       const std::vector<std::string>& protect,
                                       std::optional<uint32_t> node,
                                       const std::function<void()>& progress,
                                       const std::optional<std::string>& lineage) {
  if (keep == 0) {
    return Error(MERON_E_ARGUMENT, "keep is 0", "keep 1 or more").on(root);
  }
  std::vector<std::string> names, aside;
  {
    // Under the lock no save puts a new checkpoint in the place of one that was found to be old.
    MERON_ASSIGN(const FileLock lock, lock_root(root));
    MERON_ASSIGN(const std::vector<Entry> found, list(root, node));
    names = superfluous(found, keep, protect, lineage);
    for (const std::string& name : names) {
      MERON_ASSIGN(const std::string suffix, random_suffix());
      aside.push_back(fmt::format("{}/{}{}-{}", root, kAsidePrefix, name, suffix));
      MERON_TRY(rename_step(fmt::format("{}/{}", root, name), aside.back()));
    }
    if (!names.empty()) MERON_TRY(sync_directory_step(root));
  }
  for (const std::string& path : aside) MERON_TRY(remove_tree_step(path, progress));
  return names;
}

Result<std::vector<std::string>> would_prune(const std::string& root, size_t keep,
                                             const std::vector<std::string>& protect,
                                             std::optional<uint32_t> node) {
  if (keep == 0) {
    return Error(MERON_E_ARGUMENT, "keep is 0", "keep 1 or more").on(root);
  }
  MERON_ASSIGN(const std::vector<Entry> found, list(root, node));
  return superfluous(found, keep, protect);
}

}  // namespace meron::checkpoint

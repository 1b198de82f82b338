// SPDX-License-Identifier: Apache-2.0
// How processes that save to the same directory (ROOT) keep out of each other's way.
//
// ROOT/.saving.lock is held for moments: while a save begins, while one gets its name, while
// checkpoints lose theirs. A directory .saving-NAME-XXXXXXXX with a locked file .owner is being
// written by whoever holds that lock; one without is what a process left that was killed.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "os/file_lock.h"

namespace meron::checkpoint {

inline constexpr const char* kOwnerName = ".owner";

// Waits for half a minute: MERON_E_TIMEOUT. Where the file system has no locks, the lock that is
// returned is `unsupported`, and processes must not save at the same time.
Result<FileLock> lock_root(const std::string& root);

// Makes PATH/.owner and holds it: the content says who this process is.
Result<FileLock> own_directory(const std::string& path);

// What is left of saves, in ROOT. Nothing where the file system has no locks. With the lock held.
struct Leftovers {
  std::vector<std::string> directories;  // paths; no process owns them
  std::vector<std::string> files;
};
Result<Leftovers> find_leftovers(const std::string& root, const FileLock& lock);

// MERON_E_STATE naming the process that is saving a checkpoint of that name. With the lock held.
Status check_not_under_way(const std::string& root, const std::string& name);

// How a save puts a checkpoint aside that it replaces, where paths cannot be exchanged: as
// NAME.replaced-XXXXXXXX. If a killed process left one, it gets its name back if nothing has that
// name; it joins the leftovers if a complete checkpoint has it; otherwise it stays. With the lock
// held.
inline constexpr std::string_view kReplacedMark = ".replaced-";
// NAME of such a name; none for any other.
std::optional<std::string_view> replaced_name(std::string_view text);
Status recover_replaced(const std::string& root, Leftovers& leftovers);

}  // namespace meron::checkpoint

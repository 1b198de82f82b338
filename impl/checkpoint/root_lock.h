// SPDX-License-Identifier: Apache-2.0
// Locks between processes that save to the same directory (ROOT).
//
// ROOT/.saving.lock is held for a short time: while a save begins, while a checkpoint gets its
// name, and while checkpoints lose theirs. Its holder removes it, because ROOT may be a folder that
// people publish. A process that writes a directory .saving-NAME-XXXXXXXX holds the lock of its
// file .owner. If that file is not locked, the process was killed.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "os/file_lock.h"

namespace meron::checkpoint {

inline constexpr const char* kOwnerName = ".owner";

// Waits for half a minute, then fails with MERON_E_TIMEOUT. If the file system has no locks, the
// returned lock is `unsupported`, and processes must not save at the same time.
Result<FileLock> lock_root(const std::string& root);

// Makes PATH/.owner and holds it: the content says who this process is.
Result<FileLock> own_directory(const std::string& path);

// Remains of killed saves in ROOT. Empty if the file system has no locks. With the lock held.
struct Leftovers {
  std::vector<std::string> directories;  // paths; no process owns them
  std::vector<std::string> files;
};
Result<Leftovers> find_leftovers(const std::string& root, const FileLock& lock);

// MERON_E_STATE naming the process that is saving a checkpoint of that name. With the lock held.
Status check_not_under_way(const std::string& root, const std::string& name);

// If paths cannot be exchanged, a save first renames the checkpoint that it replaces to
// NAME.replaced-XXXXXXXX. If a killed process left one, it gets its name back if that name is free;
// it joins the leftovers if a complete checkpoint has it; otherwise it stays. With the lock held.
inline constexpr std::string_view kReplacedMark = ".replaced-";
// NAME of such a name; none for any other.
std::optional<std::string_view> replaced_name(std::string_view text);
Status recover_replaced(const std::string& root, Leftovers& leftovers);

}  // namespace meron::checkpoint

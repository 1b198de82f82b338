// SPDX-License-Identifier: Apache-2.0
// Directories: what they hold, and changes of them that last.
//
// A change is durable when sync_directory() of the directory that holds the name has succeeded, not
// before.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace meron {

// Makes a directory that its owner alone may enter, or takes an existing one. Refuses a link, and
// one that others may enter or that is another user's (MERON_E_AUTH): its owner has to be whom the
// file system takes this process for, which over NFS may be another user than on this host.
Status make_private_directory(const std::string& path);

// The names in it, but for those of hidden files. Asks a network's file system anew, which a look
// for a file by its name may not.
Result<std::vector<std::string>> list_directory(const std::string& path);

// Nothing happens where something is in it.
void remove_empty_directory(const std::string& path);

enum class EntryKind { file, directory, link, other };
struct EntryInfo {
  EntryKind kind = EntryKind::other;
  uint64_t bytes = 0;  // of a file
};

// Describes the entry at the path itself: a link is not followed. Nothing if there is none.
Result<std::optional<EntryInfo>> look_at(const std::string& path);

// The same of what links lead to; none also where a link leads nowhere.
Result<std::optional<EntryInfo>> look_through(const std::string& path);

struct DirectoryEntry {
  std::string name;
  EntryKind kind = EntryKind::other;
};
// All that is in it, hidden or not, in no order.
Result<std::vector<DirectoryEntry>> list_entries(const std::string& path);

// With the mode that umask leaves of 0777. False where something has the name already.
Result<bool> make_directory(const std::string& path);

// Waits until the names in the directory are on the device. A file system that cannot do that for
// directories keeps them as it does, and that is no error.
Status sync_directory(const std::string& path);

// `to` is replaced if it is a file, or an empty directory where `from` is a directory.
Status rename_path(const std::string& from, const std::string& to);

// Two paths of one file system exchange what has them, at once. False where the file system or the
// kernel cannot do that; then nothing has changed.
Result<bool> exchange_paths(const std::string& a, const std::string& b);

// Removes a directory and all beneath it; links are removed, not followed. An entry that another
// process removes first is no error. Ends at the first failure, and at kMaxTreeDepth with
// MERON_E_IO. `before_each`, which may be empty, is called before each removal.
inline constexpr int kMaxTreeDepth = 8;
Status remove_tree(const std::string& path, const std::function<void()>& before_each = {});

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
// The system calls that change what a directory of checkpoints holds, one per function. Each passes
// a kill point first, and fails where the fault plan says so: so tests can end or fail a save
// between any two of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "os/beneath.h"
#include "os/fd.h"
#include "os/file_lock.h"

namespace meron::checkpoint {

inline constexpr const char* kLatestName = "latest";  // names the checkpoint saved last
// Directories that begin so are being written or removed.
inline constexpr std::string_view kAsidePrefix = ".saving-";

// False where something has the name already.
Result<bool> make_directory_step(const std::string& path);
// Makes the directory and those above it, and their names durable.
Status make_directories_step(const std::string& path);
Result<FileLock> make_lock_step(const std::string& path);
Result<UniqueFd> create_file_step(const std::string& path);
// All of the bytes, through the page cache.
Status write_step(int fd, std::span<const std::byte> data, uint64_t offset,
                  const std::string& path);
Status sync_file_step(int fd, const std::string& path);
Status sync_directory_step(const std::string& path);
Status rename_step(const std::string& from, const std::string& to);
// False where the file system cannot do it.
Result<bool> exchange_step(const std::string& a, const std::string& b);
Status remove_file_step(const std::string& path);
// `before_each`: as of remove_tree().
Status remove_tree_step(const std::string& path, const std::function<void()>& before_each = {});

// Changes nothing.
Result<BeneathFile> open_beneath_step(const std::string& directory, const std::string& name);
Result<BeneathFile> open_beneath_step(int directory, const std::string& path,
                                      const std::string& name);
Result<BeneathFile> open_through_links_step(const std::string& path);
Result<std::string> read_beneath_step(const std::string& directory, const std::string& name,
                                      size_t max_bytes);

// Replaces a file. DIRECTORY/NAME has the old or the new content at every moment, even if the
// process or the host stops. The change lasts after sync_directory_step(). A failed call leaves no
// file.
Status replace_file_durably(const std::string& directory, std::string_view name,
                            std::string_view content);

// Later the process may be in another directory. MERON_E_ARGUMENT for an empty path.
Result<std::string> absolute_path(const std::string& path);

// "/a/b" and "c" of "/a/b/c".
std::string parent_of(const std::string& path);

// Eight hexadecimal digits.
Result<std::string> random_suffix();

}  // namespace meron::checkpoint

// SPDX-License-Identifier: Apache-2.0
// The directory of a checkpoint and files of it, held open. remove_checkpoint() refuses it
// meanwhile. Another process may give the path to another checkpoint, or remove this one. Held
// files stay readable. The error for any other file says that the checkpoint was replaced, and not
// that it is damaged.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "os/beneath.h"
#include "os/directory.h"
#include "os/fd.h"

namespace meron::checkpoint {

// Of a process. Files beyond are opened when they are read.
inline constexpr size_t kMaxHeldFiles = 256;

// Thread-safe.
class HeldFiles {
 public:
  static Result<std::shared_ptr<HeldFiles>> open(const std::string& directory);
  ~HeldFiles();
  HeldFiles(const HeldFiles&) = delete;
  HeldFiles& operator=(const HeldFiles&) = delete;

  // False if the path leads to another directory by now, or to none.
  bool in_place() const { return leads_to(path_, directory_.get()); }
  Result<std::optional<EntryInfo>> look_at(const std::string& name) const;
  // The content of a file of at most `max_bytes`.
  Result<std::string> read(std::string_view name, size_t max_bytes) const;
  // A descriptor of its own for the file. Errors: those of open_beneath(); MERON_E_NOT_FOUND with
  // words of their own if the checkpoint was replaced or removed.
  Result<BeneathFile> file(const std::string& name) const;
  // Opens the file now, so that file() finds it later whatever happens to its name.
  Status hold(const std::string& name);

 private:
  HeldFiles(std::string path, UniqueFd directory, UniqueFd shared)
      : path_(std::move(path)), directory_(std::move(directory)), shared_(std::move(shared)) {}
  Result<BeneathFile> open_file(const std::string& name) const;

  const std::string path_;
  const UniqueFd directory_;
  const UniqueFd shared_;  // the lock
  mutable std::mutex mutex_;
  std::map<std::string, BeneathFile> held_;  // guarded by mutex_
};

}  // namespace meron::checkpoint

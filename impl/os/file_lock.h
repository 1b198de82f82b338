// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "os/fd.h"

namespace meron {

// A lock that processes hold by a file, whatever its content, until they release it or end. The
// kernel's flock, which NFS and others know across hosts. A forked child shares its parent's lock,
// so a parent that is killed keeps it as long as such a child lives.
class FileLock {
 public:
  enum class State {
    none,
    held,
    busy,         // another holds it
    unsupported,  // the file system has no locks
  };

  FileLock() = default;
  // Never waits. Makes the file where `make`, else a missing one is MERON_E_NOT_FOUND.
  static Result<FileLock> attempt(const std::string& path, bool make);
  // The same of a directory, against those who hold it by share_directory(). It is not followed
  // where it is a link.
  static Result<FileLock> attempt_directory(const std::string& path);
  FileLock(FileLock&& other) noexcept { *this = std::move(other); }
  FileLock& operator=(FileLock&& other) noexcept;
  ~FileLock() { release(); }

  State state() const { return state_; }
  // Nothing happens in a forked child: it would take the lock from its parent.
  void release();
  // True if the path still names the locked file: the holder before may have removed it. Opens the
  // path anew, so that NFS asks the server.
  bool is_at_path() const;
  // Lets release() remove the file, if the lock is held. Attempts of others must then check
  // is_at_path(): they may have opened the file before.
  void remove_at_release() { removes_ = true; }
  // Replaces the content of the file, which attempts of others can read by its name.
  Status write(std::string_view content) const;

 private:
  Status take();

  UniqueFd fd_;
  bool removes_ = false;  // at release()
  std::string path_;
  State state_ = State::none;
  int32_t owner_pid_ = 0;
};

// Keeps attempt_directory() from succeeding as long as the returned descriptor is open. It is
// invalid if the directory cannot be read, another holds it, or the file system has no locks. Never
// waits.
UniqueFd share_directory(int directory);

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
// Makes a checkpoint appear at once: its files are written in a directory with a temporary name
// beside the final one. When all of it is on the device, the directory is renamed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "os/file_lock.h"

namespace meron::checkpoint {

struct SavingOptions {
  bool overwrite = false;             // replace a checkpoint that has the name
  std::optional<uint32_t> node = {};  // that this directory is of, where each node has its own
  std::string suffix = {};            // of the temporary directory; empty: a random one
  // Called before each file that is removed, which takes as long as it is large. May be empty.
  std::function<void()> progress = {};
};

// Used by one thread. At every moment, also if the process is killed or the host loses power, the
// name has the old checkpoint, no checkpoint if there was none, or the new one, complete.
class Saving {
 public:
  // Makes ROOT if it does not exist, and the temporary directory; removes temporary directories
  // that killed processes left in ROOT. Errors: MERON_E_ARGUMENT for an invalid name;
  // MERON_E_DUPLICATE if the name is taken, except by a checkpoint with `overwrite`; MERON_E_STATE
  // if another process is saving a checkpoint of that name; MERON_E_TIMEOUT if another holds ROOT's
  // lock.
  static Result<std::unique_ptr<Saving>> begin(const std::string& root, const std::string& name,
                                               const SavingOptions& options = {});
  // Abandons an uncommitted checkpoint. A forked child leaves it alone.
  ~Saving();
  Saving(const Saving&) = delete;
  Saving& operator=(const Saving&) = delete;

  // The temporary directory of a Saving with that suffix.
  static Result<std::string> directory_of(const std::string& root, const std::string& name,
                                          const std::string& suffix);
  // For a rank that writes into the temporary directory of another rank's Saving: waits until it is
  // visible on this host, as over NFS. MERON_E_NOT_FOUND if it is not within `timeout_ns`.
  static Status join(const std::string& directory, int64_t timeout_ns);

  // The temporary directory. Each of its files must be synced, as BlockWriter::finish() does.
  const std::string& directory() const { return directory_; }
  // The final path, valid after the commit.
  const std::string& path() const { return path_; }

  // Writes history.json: before seal() or commit().
  Status write_history(std::string_view history);
  // seal(), publish() and finish(). An error leaves the name as it was, as withdraw() does.
  Status commit(std::string_view manifest);
  // Writes the manifest and checks that all its files exist. Errors: those of open_checkpoint()
  // for the files; errors of the drive. After an error only abandon() is of use.
  Status seal(std::string_view manifest);
  // Gives the directory its name, and writes ROOT/latest. The checkpoint that had the name stays
  // aside until finish() or withdraw(); other saves leave it alone while this object lives. After
  // an error the name may be taken, if the last sync failed: only withdraw() is of use. Errors:
  // those of begin() for the name; errors of the drive.
  Status publish();
  // After publish(), once the checkpoint is final: removes the one that was replaced. A failure is
  // in warnings().
  void finish();
  // Restores the name to the checkpoint that had it, if any, and removes this one; ROOT/latest is
  // as before. Without a publish(), or after one that did not take the name, it is abandon().
  // Errors: MERON_E_STATE if another process has replaced the checkpoint meanwhile; errors of the
  // drive.
  Status withdraw();
  // Optional steps of publish() and finish() that failed.
  const std::vector<std::string>& warnings() const { return warnings_; }

  // Removes the temporary directory.
  Status abandon();

 private:
  Saving(std::string root, std::string name, const SavingOptions& options);

  enum class State { begun, writing, sealed, published, finished, abandoned };
  Status prepare();
  Status check_free() const;
  Status give_name();
  Status put_in_place();
  Status check_named() const;
  Result<std::string> take_name_back();
  void protect_replaced();
  void write_latest();
  Status restore_latest();
  void warn(const Status& status);

  const std::string root_, name_, path_;
  const SavingOptions options_;
  const int32_t owner_pid_;
  State state_ = State::begun;
  std::string directory_;
  std::string id_;                            // of the manifest, once sealed
  std::string replaced_;                      // where the former checkpoint is, once replaced
  std::optional<std::string> former_latest_;  // what ROOT/latest had, once it is written
  FileLock owner_;                            // of directory_; once published, of replaced_
  std::vector<std::string> warnings_;
};

}  // namespace meron::checkpoint

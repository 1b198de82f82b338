// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/remove.h"

#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "checkpoint/directory.h"
#include "checkpoint/file_steps.h"
#include "checkpoint/root_lock.h"
#include "os/directory.h"
#include "os/file.h"
#include "os/file_lock.h"

namespace meron::checkpoint {
namespace {

// A process that only lists the directory opens each checkpoint for a moment.
constexpr int64_t kReadersNs = 200 * kNanosPerMilli;
constexpr int64_t kReadersPollNs = 10 * kNanosPerMilli;
constexpr size_t kMaxLatest = 4096;  // bytes; what is longer is no name

// MERON_E_NOT_FOUND, MERON_E_AUTH or MERON_E_ARGUMENT if the path is not a directory with a
// manifest.
Status check_is_checkpoint(const std::string& path) {
  MERON_ASSIGN(const auto there, look_at(path));
  if (!there) {
    return Error(MERON_E_NOT_FOUND, "there is no checkpoint of that name",
                 "look at the folder and the name, or list the folder's checkpoints")
        .on(path);
  }
  if (there->kind == EntryKind::link) {
    return Error(MERON_E_AUTH, "the checkpoint is a link, which is not followed",
                 "remove the link itself, or what it leads to")
        .on(path);
  }
  const auto no_checkpoint = [&] {
    return Error(MERON_E_ARGUMENT, "that is no checkpoint, so it stays",
                 "name a checkpoint, or remove it by other means")
        .on(path);
  };
  if (there->kind != EntryKind::directory) return no_checkpoint();
  MERON_ASSIGN(const auto manifest, look_at(fmt::format("{}/{}", path, kManifestFile)));
  if (!manifest || manifest->kind != EntryKind::file) return no_checkpoint();
  return Ok{};
}

// Its manifest can be read, whatever its files are like.
Status check_manifest(const std::string& path) {
  MERON_ASSIGN(const auto held, HeldFiles::open(path));
  auto text = held->read(kManifestFile, kMaxManifest);
  if (!text.ok()) return std::move(text).error();
  auto manifest = parse_manifest(*text);
  if (manifest.ok()) return Ok{};
  return std::move(manifest).error().on(fmt::format("{}/{}", path, kManifestFile));
}

// No other holds it while the lock lives.
Result<FileLock> lock_out_readers(const std::string& path) {
  const Deadline deadline = Deadline::after(kReadersNs);
  while (true) {
    MERON_ASSIGN(FileLock lock, FileLock::attempt_directory(path));
    if (lock.state() != FileLock::State::busy) return lock;
    if (deadline.passed()) {
      return Error(MERON_E_STATE, "a process has the checkpoint open to read it",
                   "release what opened or loaded it, or remove it later")
          .on(path);
    }
    std::this_thread::sleep_for(std::chrono::nanoseconds(kReadersPollNs));
  }
}

// The checkpoint of that name is gone.
Status update_latest(const std::string& root, const std::string& name) {
  const std::string path = fmt::format("{}/{}", root, kLatestName);
  const auto now = read_file(path, kMaxLatest);
  if (!now.ok() || *now != name + "\n") return Ok{};
  MERON_ASSIGN(const std::vector<Entry> left, list(root));
  MERON_TRY(left.empty() || !left.front().complete()
                ? remove_file_step(path)
                : replace_file_durably(root, kLatestName, left.front().name + "\n"));
  return sync_directory_step(root);
}

}  // namespace

Status remove_checkpoint(const std::string& root, const std::string& name) {
  MERON_TRY(check_checkpoint_name(name));
  MERON_ASSIGN(const std::string absolute, absolute_path(root));
  const std::string path = fmt::format("{}/{}", absolute, name);
  MERON_TRY(check_is_checkpoint(path));  // before a lock's file is made beside it
  std::string aside;
  {
    // Under the lock no save puts another checkpoint in its place.
    MERON_ASSIGN(const FileLock lock, lock_root(absolute));
    MERON_TRY(check_is_checkpoint(path));
    MERON_TRY(check_not_under_way(absolute, name));
    MERON_TRY(check_manifest(path));
    MERON_ASSIGN([[maybe_unused]] const FileLock readers, lock_out_readers(path));
    MERON_ASSIGN(const std::string suffix, random_suffix());
    aside = fmt::format("{}/{}{}-{}", absolute, kAsidePrefix, name, suffix);
    MERON_TRY(rename_step(path, aside));
    MERON_TRY(sync_directory_step(absolute));
    MERON_TRY(update_latest(absolute, name));
  }
  return remove_tree_step(aside);
}

}  // namespace meron::checkpoint

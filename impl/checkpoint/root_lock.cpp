// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/root_lock.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "checkpoint/directory.h"
#include "checkpoint/file_steps.h"
#include "os/directory.h"
#include "os/file.h"
#include "os/host.h"
#include "os/process.h"

namespace meron::checkpoint {
namespace {

constexpr const char* kRootLockName = ".saving.lock";
constexpr int64_t kRootLockNs = 30 * kNanosPerSecond;
constexpr int64_t kRootLockPollNs = 10 * kNanosPerMilli;
constexpr size_t kSuffixDigits = 8;
constexpr size_t kMaxOwnerText = 4096;

std::string who_am_i() {
  return fmt::format("process {} on {}", process_id(), host_name());
}

std::string who_holds(const std::string& path) {
  const auto text = read_file(path, kMaxOwnerText);
  return text.ok() && !text->empty() ? *text : "another process";
}

// NAME of PREFIX NAME SEPARATOR XXXXXXXX; none where the text is not made so.
std::optional<std::string_view> name_within(std::string_view text, std::string_view prefix,
                                            std::string_view separator) {
  if (!text.starts_with(prefix) ||
      text.size() <= prefix.size() + separator.size() + kSuffixDigits) {
    return {};
  }
  const std::string_view suffix = text.substr(text.size() - kSuffixDigits);
  if (suffix.find_first_not_of("0123456789abcdef") != suffix.npos) return {};
  text.remove_suffix(kSuffixDigits);
  if (!text.ends_with(separator)) return {};
  text.remove_suffix(separator.size());
  return text.substr(prefix.size());
}

// True if a process holds the directory, as far as can be determined.
bool is_owned(const std::string& path) {
  const auto lock = FileLock::attempt(fmt::format("{}/{}", path, kOwnerName), false);
  if (!lock.ok()) return lock.error().code() != MERON_E_NOT_FOUND;
  return lock->state() != FileLock::State::held;
}

}  // namespace

Result<FileLock> lock_root(const std::string& root) {
  const std::string path = fmt::format("{}/{}", root, kRootLockName);
  const Deadline deadline = Deadline::after(kRootLockNs);
  while (true) {
    MERON_ASSIGN(FileLock lock, make_lock_step(path));
    if (lock.state() == FileLock::State::unsupported) return lock;
    // The last holder removed the file after this process had opened it: another may lock a new
    // one.
    const bool is_ours = lock.state() == FileLock::State::held && lock.is_at_path();
    if (is_ours) {
      // For messages alone: a full disk must not keep prune() from making room.
      (void)lock.write(who_am_i()).ok();
      lock.remove_at_release();
      return lock;
    }
    if (deadline.passed()) {
      return Error(MERON_E_TIMEOUT,
                   fmt::format("{} has held the directory's lock for {} s", who_holds(path),
                               kRootLockNs / kNanosPerSecond),
                   "look whether that process is stopped, or its drive does not answer")
          .on(path);
    }
    std::this_thread::sleep_for(std::chrono::nanoseconds(kRootLockPollNs));
  }
}

Result<FileLock> own_directory(const std::string& path) {
  const std::string owner = fmt::format("{}/{}", path, kOwnerName);
  MERON_ASSIGN(FileLock lock, make_lock_step(owner));
  MERON_TRY(lock.write(who_am_i()));
  return lock;
}

std::optional<std::string_view> replaced_name(std::string_view text) {
  return name_within(text, "", kReplacedMark);
}

Result<Leftovers> find_leftovers(const std::string& root, const FileLock& lock) {
  Leftovers leftovers;
  if (lock.state() != FileLock::State::held) return leftovers;
  MERON_ASSIGN(const std::vector<DirectoryEntry> entries, list_entries(root));
  for (const DirectoryEntry& entry : entries) {
    const std::string path = fmt::format("{}/{}", root, entry.name);
    if (entry.kind == EntryKind::directory && name_within(entry.name, kAsidePrefix, "-") &&
        !is_owned(path)) {
      leftovers.directories.push_back(path);
    } else if (entry.kind == EntryKind::file &&
               name_within(entry.name, ".", "-") == std::string_view(kLatestName)) {
      leftovers.files.push_back(path);
    }
  }
  MERON_TRY(recover_replaced(root, leftovers));
  return leftovers;
}

Status check_not_under_way(const std::string& root, const std::string& name) {
  MERON_ASSIGN(const std::vector<DirectoryEntry> entries, list_entries(root));
  for (const DirectoryEntry& entry : entries) {
    if (entry.kind != EntryKind::directory) continue;
    if (name_within(entry.name, kAsidePrefix, "-") != std::string_view(name)) continue;
    const std::string owner = fmt::format("{}/{}/{}", root, entry.name, kOwnerName);
    const auto lock = FileLock::attempt(owner, false);
    if (!lock.ok() || lock->state() != FileLock::State::busy) continue;
    return Error(MERON_E_STATE,
                 fmt::format("another save of {} is under way in {}", name, who_holds(owner)),
                 "wait for it, end that process, or choose another name")
        .on(root);
  }
  return Ok{};
}

Status recover_replaced(const std::string& root, Leftovers& leftovers) {
  MERON_ASSIGN(const std::vector<DirectoryEntry> entries, list_entries(root));
  for (const DirectoryEntry& entry : entries) {
    const auto name = replaced_name(entry.name);
    if (entry.kind != EntryKind::directory || !name) continue;
    const std::string replaced = fmt::format("{}/{}", root, entry.name);
    const std::string own = fmt::format("{}/{}", root, *name);
    const auto checkpoint = open_checkpoint(replaced);
    if (!checkpoint.ok() || checkpoint->manifest.name != *name) continue;  // another's
    MERON_ASSIGN(const auto there, look_at(own));
    if (there) {
      // The file with the name may be another process', or incomplete: then this is the only
      // complete one.
      if (!open_checkpoint(own).ok()) continue;
      MERON_ASSIGN(const std::string suffix, random_suffix());
      leftovers.directories.push_back(fmt::format("{}/{}{}-{}", root, kAsidePrefix, *name, suffix));
      MERON_TRY(rename_step(replaced, leftovers.directories.back()));
      continue;
    }
    MERON_TRY(rename_step(replaced, own));
    MERON_TRY(sync_directory_step(root));
  }
  return Ok{};
}

}  // namespace meron::checkpoint

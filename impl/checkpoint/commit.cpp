// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/commit.h"

#include <fmt/format.h>

#include <chrono>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/no_memory.h"
#include "checkpoint/directory.h"
#include "checkpoint/file_steps.h"
#include "checkpoint/root_lock.h"
#include "os/directory.h"
#include "os/file.h"
#include "os/process.h"

namespace meron::checkpoint {
namespace {

constexpr int64_t kJoinPollNs = 20 * kNanosPerMilli;
constexpr size_t kMaxLatest = 4096;  // bytes; what is longer is no name

std::string text_of(const Status& failed) {
  const ErrorInfo& info = failed.error().info();
  return fmt::format("{}: {}", info.subject, info.what);
}

}  // namespace

Saving::Saving(std::string root, std::string name, const SavingOptions& options)
    : root_(std::move(root)),
      name_(std::move(name)),
      path_(fmt::format("{}/{}", root_, name_)),
      options_(options),
      owner_pid_(process_id()) {}

Result<std::unique_ptr<Saving>> Saving::begin(const std::string& root, const std::string& name,
                                              const SavingOptions& options) {
  MERON_TRY(check_new_name(name));
  MERON_ASSIGN(std::string absolute, absolute_path(root));
  std::unique_ptr<Saving> saving(new Saving(std::move(absolute), name, options));
  MERON_TRY(saving->prepare());
  return saving;
}

Saving::~Saving() {
  if (process_id() == owner_pid_) (void)catch_no_memory([&] { return abandon(); }).ok();
}

Result<std::string> Saving::directory_of(const std::string& root, const std::string& name,
                                         const std::string& suffix) {
  MERON_ASSIGN(const std::string absolute, absolute_path(root));
  return fmt::format("{}/{}{}-{}", absolute, kAsidePrefix, name, suffix);
}

Status Saving::prepare() {
  MERON_TRY(make_directories_step(root_));
  Leftovers leftovers;
  {
    MERON_ASSIGN(const FileLock lock, lock_root(root_));
    MERON_ASSIGN(leftovers, find_leftovers(root_, lock));
    MERON_TRY(check_free());
    MERON_TRY(check_not_under_way(root_, name_));
    std::string suffix = options_.suffix;
    if (suffix.empty()) {
      MERON_ASSIGN(suffix, random_suffix());
    }
    MERON_ASSIGN(directory_, directory_of(root_, name_, suffix));
    MERON_ASSIGN(const bool made, make_directory_step(directory_));
    if (!made) return Error(MERON_E_STATE, "the name is taken", "try again").on(directory_);
    state_ = State::writing;
    MERON_ASSIGN(owner_, own_directory(directory_));
  }
  // Without the lock, because removing large directories takes long. No save reuses leftovers. One
  // that cannot be removed, for example another user's, does not prevent this save.
  for (const std::string& path : leftovers.directories)
    (void)remove_tree_step(path, options_.progress).ok();
  for (const std::string& path : leftovers.files) (void)remove_file_step(path).ok();
  return Ok{};
}

Status Saving::check_free() const {
  MERON_ASSIGN(const auto there, look_at(path_));
  if (!there) return Ok{};
  const auto manifest = look_at(fmt::format("{}/{}", path_, kManifestFile));
  const bool ours = there->kind == EntryKind::directory && manifest.ok() && manifest->has_value();
  if (ours && options_.overwrite) return Ok{};
  return Error(MERON_E_DUPLICATE,
               ours ? "a checkpoint has the name already"
                    : "something that is no checkpoint has the name already",
               ours ? "choose another name, or overwrite it" : "choose another name, or remove it")
      .on(path_);
}

Status Saving::join(const std::string& directory, int64_t timeout_ns) {
  const Deadline deadline = timeout_ns < 0 ? Deadline::never() : Deadline::after(timeout_ns);
  while (true) {
    MERON_ASSIGN(const auto there, look_at(directory));
    if (there && there->kind == EntryKind::directory) return Ok{};
    if (deadline.passed()) {
      return Error(MERON_E_NOT_FOUND, "the directory of the save is not visible on this host",
                   "name a directory that all nodes share, or save on each node")
          .on(directory);
    }
    // This revalidates a network file system's cache.
    (void)list_directory(parent_of(directory)).ok();
    std::this_thread::sleep_for(std::chrono::nanoseconds(kJoinPollNs));
  }
}

Status Saving::commit(std::string_view manifest) {
  MERON_TRY(seal(manifest));
  Status published = publish();
  if (published.ok()) {
    finish();
    return published;
  }
  const Status withdrawn = withdraw();
  if (withdrawn.ok()) return published;
  Error error = published.error();
  error.info().what += fmt::format("; undoing it failed: {}", text_of(withdrawn));
  return error;
}

Status Saving::write_history(std::string_view history) {
  return replace_file_durably(directory_, kHistoryFile, history);
}

Status Saving::seal(std::string_view manifest) {
  if (state_ != State::writing) {
    return Error(MERON_E_STATE, "the save has ended").on(path_);
  }
  MERON_TRY(replace_file_durably(directory_, kManifestFile, manifest));
  // A directory is published only after a check that it is complete.
  MERON_ASSIGN(const Checkpoint complete, open_checkpoint(directory_, options_.node));
  id_ = complete.manifest.id;
  state_ = State::sealed;
  return Ok{};
}

Status Saving::publish() {
  if (state_ != State::sealed) {
    return Error(MERON_E_STATE, "the save is not complete, or has ended").on(path_);
  }
  MERON_ASSIGN(const FileLock lock, lock_root(root_));
  Status named = give_name();
  protect_replaced();
  // From now on the checkpoint exists.
  if (named.ok()) write_latest();
  return named;
}

void Saving::finish() {
  if (state_ != State::published) return;
  state_ = State::finished;
  owner_.release();
  if (replaced_ == directory_) warn(remove_tree_step(replaced_, options_.progress));
}

Status Saving::withdraw() {
  if (state_ != State::published) return abandon();
  std::string aside;
  Status latest = Ok{};
  {
    MERON_ASSIGN(const FileLock lock, lock_root(root_));
    MERON_TRY(check_named());
    MERON_ASSIGN(aside, take_name_back());
    state_ = State::abandoned;
    latest = restore_latest();
    // Unless the name is durable, the files must stay: after a power cut it may lead to them.
    MERON_TRY(sync_directory_step(root_));
  }
  MERON_TRY(remove_tree_step(aside, options_.progress));
  return latest;
}

Status Saving::give_name() {
  MERON_TRY(check_free());
  MERON_TRY(remove_file_step(fmt::format("{}/{}", directory_, kOwnerName)));
  MERON_TRY(sync_directory_step(directory_));
  MERON_TRY(put_in_place());
  state_ = State::published;
  owner_.release();
  return sync_directory_step(root_);
}

// So that no other save removes it.
void Saving::protect_replaced() {
  if (replaced_ != directory_) return;
  auto owner = own_directory(replaced_);
  if (owner.ok()) {
    owner_ = std::move(owner).value();
  } else {
    warn(owner.error());
  }
}

Status Saving::put_in_place() {
  MERON_ASSIGN(const auto there, look_at(path_));
  if (!there) return rename_step(directory_, path_);
  MERON_ASSIGN(const bool exchanged, exchange_step(directory_, path_));
  if (exchanged) {
    replaced_ = directory_;
    return Ok{};
  }
  // The former one keeps a name under which it is found, until the new one has its own.
  MERON_ASSIGN(const std::string suffix, random_suffix());
  const std::string aside = fmt::format("{}{}{}", path_, kReplacedMark, suffix);
  MERON_TRY(rename_step(path_, aside));
  Status renamed = rename_step(directory_, path_);
  if (!renamed.ok()) {
    (void)rename_path(aside, path_).ok();
    return renamed;
  }
  // It loses that name before its first file. If not now, the next save does it.
  replaced_ = rename_step(aside, directory_).ok() ? directory_ : aside;
  return Ok{};
}

Status Saving::check_named() const {
  MERON_ASSIGN(const Checkpoint named, open_checkpoint(path_, options_.node));
  if (named.manifest.id == id_) return Ok{};
  return Error(MERON_E_STATE, "another save has replaced the checkpoint", "look which one it is")
      .on(path_);
}

// Returns the path of this checkpoint afterwards.
Result<std::string> Saving::take_name_back() {
  if (replaced_.empty()) {
    MERON_TRY(rename_step(path_, directory_));
    return directory_;
  }
  owner_.release();
  (void)remove_file_step(fmt::format("{}/{}", replaced_, kOwnerName)).ok();
  MERON_ASSIGN(const bool exchanged, exchange_step(path_, replaced_));
  if (exchanged) return replaced_;
  // As in put_in_place(): at each moment the former one has a name under which it is found.
  MERON_ASSIGN(const std::string suffix, random_suffix());
  const std::string former = fmt::format("{}{}{}", path_, kReplacedMark, suffix);
  if (replaced_ == directory_) MERON_TRY(rename_step(replaced_, former));
  const std::string& from = replaced_ == directory_ ? former : replaced_;
  MERON_TRY(rename_step(path_, directory_));
  MERON_TRY(rename_step(from, path_));
  return directory_;
}

void Saving::write_latest() {
  const auto former = read_file(fmt::format("{}/{}", root_, kLatestName), kMaxLatest);
  const Status written = replace_file_durably(root_, kLatestName, name_ + "\n");
  warn(written);
  if (!written.ok()) return;
  former_latest_ = former.ok() ? *former : std::string();
  warn(sync_directory_step(root_));
}

Status Saving::restore_latest() {
  const std::string path = fmt::format("{}/{}", root_, kLatestName);
  if (!former_latest_) return Ok{};
  const auto now = read_file(path, kMaxLatest);
  if (!now.ok() || *now != name_ + "\n") return Ok{};  // another save's
  return former_latest_->empty() ? remove_file_step(path)
                                 : replace_file_durably(root_, kLatestName, *former_latest_);
}

void Saving::warn(const Status& status) {
  if (!status.ok()) warnings_.push_back(text_of(status));
}

Status Saving::abandon() {
  if (state_ != State::writing && state_ != State::sealed) return Ok{};
  state_ = State::abandoned;
  Status removed = remove_tree_step(directory_, options_.progress);
  owner_.release();
  return removed;
}

}  // namespace meron::checkpoint

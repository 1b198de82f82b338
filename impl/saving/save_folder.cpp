// SPDX-License-Identifier: Apache-2.0
#include "saving/save_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/no_memory.h"
#include "checkpoint/directory.h"
#include "checkpoint/prune.h"
#include "os/directory.h"
#include "os/random.h"
#include "saving/node_folders.h"

namespace meron {
namespace {

// Until the directory of another rank is seen by this one.
constexpr int64_t kVisibleNs = 30'000'000'000;
constexpr size_t kIdDigits = 32;
constexpr size_t kSuffixDigits = 8;

Result<std::string> new_id() {
  std::array<std::byte, kIdDigits / 2> bytes{};
  MERON_TRY(random_bytes(bytes));
  std::string id;
  for (const std::byte byte : bytes) id += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  return id;
}

Error shared_folder_error(const std::string& root) {
  return Error(MERON_E_ARGUMENT, "two nodes see the same folder, and it was to be one per node",
               "save without per_node, or give a folder on a disk of each node")
      .on(root);
}

Status status_of(const auto& result) {
  return result.ok() ? Status(Ok{}) : Status(result.error());
}

}  // namespace

Result<SaveFolder> SaveFolder::begin(Exchange& exchange, const SaveTarget& target, Warn warn) {
  SaveFolder folder(exchange, target, std::move(warn));
  MERON_TRY(target.nodes.empty() ? folder.begin_shared(exchange) : folder.begin_per_node(exchange));
  return folder;
}

Status SaveFolder::begin_shared(Exchange& exchange) {
  const auto make = [&]() -> Result<std::string> {
    MERON_ASSIGN(const std::string id, new_id());
    MERON_ASSIGN(saving_,
                 checkpoint::Saving::begin(target_->root, target_->name,
                                           {.overwrite = target_->overwrite,
                                            .progress = [&exchange] { exchange.progressed(); }}));
    return id + saving_->directory();
  };
  MERON_ASSIGN(
      const std::string begun,
      share(exchange, rank_ == 0 ? catch_no_memory(make) : Result<std::string>(std::string())));
  id_ = begun.substr(0, kIdDigits);
  directory_ = begun.substr(kIdDigits);
  return agree(exchange,
               rank_ == 0 ? Status(Ok{}) : checkpoint::Saving::join(directory_, kVisibleNs));
}

// The suffix is this save's alone.
bool SaveFolder::made_by_another(const std::string& suffix) const {
  const auto path = checkpoint::Saving::directory_of(target_->root, target_->name, suffix);
  if (!path.ok()) return false;
  const auto there = look_at(*path);
  return there.ok() && there->has_value();
}

Status SaveFolder::begin_per_node(Exchange& exchange) {
  MERON_ASSIGN(id_, share(exchange, rank_ == 0 ? new_id() : Result<std::string>(std::string())));
  MERON_ASSIGN(const bool free,
               name_is_free(exchange, target_->root, target_->name, target_->nodes));
  const std::string suffix = id_.substr(0, kSuffixDigits);
  Status made = Ok{};
  if (leads_node(target_->nodes, rank_)) {
    auto saving =
        checkpoint::Saving::begin(target_->root, target_->name,
                                  {.overwrite = target_->overwrite || free,
                                   .node = node_numbers(target_->nodes)[static_cast<size_t>(rank_)],
                                   .suffix = suffix,
                                   .progress = [&exchange] { exchange.progressed(); }});
    if (saving.ok()) {
      saving_ = std::move(saving).value();
    } else {
      made = made_by_another(suffix) ? shared_folder_error(target_->root) : saving.error();
    }
  }
  MERON_TRY(agree(exchange, made));
  auto directory = checkpoint::Saving::directory_of(target_->root, target_->name, suffix);
  Status seen = status_of(directory);
  if (directory.ok()) {
    directory_ = std::move(directory).value();
    if (!saving_) seen = checkpoint::Saving::join(directory_, kVisibleNs);
  }
  return agree(exchange, seen);
}

Status SaveFolder::write_history() {
  return history_.empty() ? Status(Ok{}) : saving_->write_history(history_);
}

Status SaveFolder::commit(Exchange& exchange, const Result<checkpoint::Manifest>& manifest,
                          const std::string& history) {
  history_ = history;
  return target_->nodes.empty() ? commit_shared(exchange, manifest)
                                : commit_per_node(exchange, manifest);
}

Status SaveFolder::commit_shared(Exchange& exchange, const Result<checkpoint::Manifest>& manifest) {
  Status done = status_of(manifest);
  if (saving_ && done.ok()) {
    done = catch_no_memory([&]() -> Status {
      MERON_TRY(write_history());
      return saving_->commit(checkpoint::to_json(*manifest));
    });
  }
  if (saving_ && done.ok()) prune_and_warn(exchange);
  return agree(exchange, done);
}

Status SaveFolder::commit_per_node(Exchange& exchange,
                                   const Result<checkpoint::Manifest>& manifest) {
  const auto text = [&]() -> Result<std::string> {
    if (!manifest.ok()) return manifest.error();
    return rank_ == 0 ? checkpoint::to_json(*manifest) : std::string();
  };
  MERON_ASSIGN(const std::string json, share(exchange, text()));
  const auto seal = [&]() -> Status {
    MERON_TRY(write_history());
    return saving_->seal(json);
  };
  MERON_TRY(agree(exchange, saving_ ? catch_no_memory(seal) : Status(Ok{})));
  Verdict verdict;
  Status published = agree(exchange, saving_ ? saving_->publish() : Status(Ok{}), &verdict);
  if (!published.ok()) {
    // If the group broke, the other nodes may have all kept theirs: both stay here.
    if (verdict == Verdict::some_failed) withdraw();
    return published;
  }
  if (saving_) {
    saving_->finish();
    prune_and_warn(exchange);
  }
  // The ranks' next call must not start while this rank still removes files.
  return agree(exchange, Ok{});
}

void SaveFolder::withdraw() {
  if (!saving_) return;
  const Status withdrawn = saving_->withdraw();
  if (withdrawn.ok() || !warn_) return;
  const ErrorInfo& info = withdrawn.error().info();
  warn_(fmt::format(
      "save of '{}': it failed on another node, and undoing it on this one failed too: {}: {}",
      target_->name, info.subject, info.what));
}

// The checkpoint is there: nothing here makes it a failure.
void SaveFolder::prune_and_warn(Exchange& exchange) {
  std::vector<std::string> warnings = saving_->warnings();
  if (target_->keep > 0) {
    // Of the line that this checkpoint continues: those of other runs are not this run's.
    const auto saved = checkpoint::parse_history(history_);
    const auto pruned = checkpoint::prune(
        target_->root, target_->keep, {target_->name}, {}, [&exchange] { exchange.progressed(); },
        saved.ok() ? saved->lineage : std::string());
    if (!pruned.ok()) {
      const ErrorInfo& info = pruned.error().info();
      warnings.push_back(fmt::format("older checkpoints stay: {}: {}", info.subject, info.what));
    }
  }
  for (const std::string& warning : warnings) {
    if (warn_) warn_(fmt::format("save of '{}': {}", target_->name, warning));
  }
}

}  // namespace meron

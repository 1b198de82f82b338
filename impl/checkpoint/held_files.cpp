// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/held_files.h"

#include <atomic>
#include <utility>

#include "checkpoint/file_steps.h"
#include "os/file.h"
#include "os/file_lock.h"

namespace meron::checkpoint {
namespace {

std::atomic<size_t> held_in_process{0};

}  // namespace

Result<std::shared_ptr<HeldFiles>> HeldFiles::open(const std::string& directory) {
  MERON_ASSIGN(UniqueFd fd, open_directory(directory));
  UniqueFd shared = share_directory(fd.get());
  return std::shared_ptr<HeldFiles>(new HeldFiles(directory, std::move(fd), std::move(shared)));
}

HeldFiles::~HeldFiles() {
  held_in_process.fetch_sub(held_.size());
}

Result<std::optional<EntryInfo>> HeldFiles::look_at(const std::string& name) const {
  return look_beneath(directory_.get(), path_, name);
}

Result<BeneathFile> HeldFiles::open_file(const std::string& name) const {
  auto opened = open_beneath_step(directory_.get(), path_, name);
  if (opened.ok() || opened.error().code() != MERON_E_NOT_FOUND || in_place()) return opened;
  return Error(MERON_E_NOT_FOUND,
               "the checkpoint was replaced or removed by another save while it was read",
               "load the newer one, or save under names of their own and keep more of them")
      .on(path_);
}

Result<std::string> HeldFiles::read(std::string_view name, size_t max_bytes) const {
  MERON_ASSIGN(const BeneathFile opened, open_file(std::string(name)));
  auto content = read_stream(opened.fd.get(), max_bytes, Deadline::never());
  if (!content.ok()) return std::move(content).error().on(path_ + "/" + std::string(name));
  return content;
}

Result<BeneathFile> HeldFiles::file(const std::string& name) const {
  {
    const std::lock_guard lock(mutex_);
    const auto found = held_.find(name);
    if (found != held_.end()) return duplicate(found->second, path_ + "/" + name);
  }
  return open_file(name);
}

Status HeldFiles::hold(const std::string& name) {
  const std::lock_guard lock(mutex_);
  if (held_.count(name) != 0) return Ok{};
  MERON_ASSIGN(BeneathFile opened, open_file(name));
  if (held_in_process.load() >= kMaxHeldFiles) return Ok{};
  held_.emplace(name, std::move(opened));
  held_in_process.fetch_add(1);
  return Ok{};
}

}  // namespace meron::checkpoint

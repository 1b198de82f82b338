// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/open_files.h"

#include <fmt/format.h>

#include <utility>

#include "checkpoint/file_steps.h"
#include "os/direct_file.h"

namespace meron::checkpoint {
namespace {

constexpr size_t kMaxOpenFiles = 32;  // two descriptors each

Status check_size(uint64_t bytes, uint64_t expected, const std::string& path) {
  if (bytes == expected) return Ok{};
  return Error(MERON_E_CORRUPT,
               fmt::format("the file has {} bytes, and by the manifest it has {}", bytes, expected),
               "it was cut or replaced: copy it anew, or load another checkpoint")
      .on(path);
}

}  // namespace

Result<DirectFile> open_checked(const FilesAt& at, const File& file) {
  const std::string path = at.directory + "/" + file.name;
  if (at.links) {
    MERON_ASSIGN(DirectFile opened, DirectFile::open(path, FileUse::read));
    MERON_ASSIGN(const uint64_t bytes, opened.size());
    MERON_TRY(check_size(bytes, file.bytes, path));
    return opened;
  }
  MERON_ASSIGN(BeneathFile opened,
               at.held ? at.held->file(file.name) : open_beneath_step(at.directory, file.name));
  MERON_TRY(check_size(opened.bytes, file.bytes, path));
  return DirectFile::adopt(std::move(opened.fd), path, FileUse::read);
}

FilesAt files_at(const Checkpoint& checkpoint) {
  return {checkpoint.directory(), checkpoint.foreign, checkpoint.held};
}

Status OpenFiles::check(uint32_t file) const {
  const File& wanted = files_[file];
  if (at_.links) {
    MERON_TRY(open_checked(at_, wanted));
    return Ok{};
  }
  if (at_.held) MERON_TRY(at_.held->hold(wanted.name));
  MERON_ASSIGN(const BeneathFile opened, at_.held ? at_.held->file(wanted.name)
                                                  : open_beneath_step(at_.directory, wanted.name));
  return check_size(opened.bytes, wanted.bytes, path(file));
}

Result<std::shared_ptr<IoFile>> OpenFiles::get(uint32_t file, bool shared) {
  for (auto it = opened_.begin(); it != opened_.end(); ++it) {
    if (it->file != file || it->shared != shared) continue;
    opened_.splice(opened_.begin(), opened_, it);
    return it->io;
  }
  MERON_ASSIGN(DirectFile direct, open_checked(at_, files_[file]));
  // Reads already have their full length: a read-ahead would never be used.
  if (shared) direct.stop_read_ahead();
  MERON_ASSIGN(std::shared_ptr<IoFile> io, engine_.add(std::move(direct)));
  if (shared) io->use_page_cache();
  if (opened_.size() == kMaxOpenFiles) opened_.pop_back();
  opened_.push_front({.file = file, .shared = shared, .io = io});
  return io;
}

}  // namespace meron::checkpoint

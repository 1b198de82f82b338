// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/open_files.h"

#include <fmt/format.h>

#include <utility>

#include "checkpoint/steps.h"
#include "os/direct_file.h"

namespace meron::checkpoint {
namespace {

constexpr size_t kMaxOpenFiles = 32;  // two descriptors each

Result<BeneathFile> open_checked(const std::string& directory, const File& file) {
  MERON_ASSIGN(BeneathFile opened, open_beneath_step(directory, file.name));
  if (opened.bytes == file.bytes) return opened;
  return Error(MERON_E_CORRUPT,
               fmt::format("the file has {} bytes, and by the manifest it has {}", opened.bytes,
                           file.bytes),
               "it was cut or replaced: copy it anew, or load another checkpoint")
      .on(directory + "/" + file.name);
}

}  // namespace

Status OpenFiles::check(uint32_t file) const {
  MERON_TRY(open_checked(directory_, files_[file]));
  return Ok{};
}

Result<std::shared_ptr<IoFile>> OpenFiles::get(uint32_t file, bool shared) {
  for (auto it = opened_.begin(); it != opened_.end(); ++it) {
    if (it->file != file || it->shared != shared) continue;
    opened_.splice(opened_.begin(), opened_, it);
    return it->io;
  }
  MERON_ASSIGN(BeneathFile opened, open_checked(directory_, files_[file]));
  MERON_ASSIGN(DirectFile direct,
               DirectFile::adopt(std::move(opened.fd), path(file), FileUse::read));
  MERON_ASSIGN(std::shared_ptr<IoFile> io, engine_.add(std::move(direct)));
  if (shared) io->use_page_cache();
  if (opened_.size() == kMaxOpenFiles) opened_.pop_back();
  opened_.push_front({.file = file, .shared = shared, .io = io});
  return io;
}

}  // namespace meron::checkpoint

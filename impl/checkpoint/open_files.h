// SPDX-License-Identifier: Apache-2.0
// The files of a checkpoint that are open at a time: few, however many it has.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "checkpoint/directory.h"
#include "checkpoint/held_files.h"
#include "checkpoint/manifest.h"
#include "io/io_engine.h"
#include "os/direct_file.h"

namespace meron::checkpoint {

// The place of the files of a checkpoint.
struct FilesAt {
  std::string directory;
  bool links = false;  // followed; else a link is refused
  // The directory, if it is open already: then its path does not matter.
  std::shared_ptr<HeldFiles> held = nullptr;
};

// A file of a checkpoint, for reading. Errors: those of open_beneath() and DirectFile::open();
// MERON_E_CORRUPT for another size; MERON_E_NOT_FOUND if the checkpoint was replaced.
Result<DirectFile> open_checked(const FilesAt& at, const File& file);

// Of a checkpoint.
FilesAt files_at(const Checkpoint& checkpoint);

class OpenFiles {
 public:
  // `files` must stay.
  OpenFiles(IoEngine& engine, FilesAt at, std::span<const File> files)
      : engine_(engine), at_(std::move(at)), files_(files) {}

  // Checks that the file exists with its size. From then on it is held, if the directory is.
  // Errors: those of open_checked().
  Status check(uint32_t file) const;
  // The file, opened unless it is open, closing the one used least recently. `shared`: through the
  // page cache. A file whose size has changed is MERON_E_CORRUPT.
  Result<std::shared_ptr<IoFile>> get(uint32_t file, bool shared);
  std::string path(uint32_t file) const { return at_.directory + "/" + files_[file].name; }

 private:
  struct Opened {
    uint32_t file = 0;
    bool shared = false;
    std::shared_ptr<IoFile> io;
  };

  IoEngine& engine_;
  const FilesAt at_;
  const std::span<const File> files_;
  std::list<Opened> opened_;  // the front was used last
};

}  // namespace meron::checkpoint

// SPDX-License-Identifier: Apache-2.0
// The files of a checkpoint that are open at a time: few, however many it has.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "checkpoint/manifest.h"
#include "io/io_engine.h"
#include "os/direct_file.h"

namespace meron::checkpoint {

// A file of a checkpoint in `directory`, for reading. `links`: those are followed; else a link is
// refused. Errors: those of open_beneath() and DirectFile::open(); MERON_E_CORRUPT for another
// size.
Result<DirectFile> open_checked(const std::string& directory, const File& file, bool links);

class OpenFiles {
 public:
  // `files` must stay. `links` as open_checked() takes it.
  OpenFiles(IoEngine& engine, std::string directory, std::span<const File> files, bool links)
      : engine_(engine), directory_(std::move(directory)), files_(files), links_(links) {}

  // Whether the file exists with its size. Errors: those of open_beneath(); MERON_E_CORRUPT.
  Status check(uint32_t file) const;
  // The file, opened unless it is open, closing the one used least recently. `shared`: through the
  // page cache. A file whose size has changed is MERON_E_CORRUPT.
  Result<std::shared_ptr<IoFile>> get(uint32_t file, bool shared);
  std::string path(uint32_t file) const { return directory_ + "/" + files_[file].name; }

 private:
  struct Opened {
    uint32_t file = 0;
    bool shared = false;
    std::shared_ptr<IoFile> io;
  };

  IoEngine& engine_;
  const std::string directory_;
  const std::span<const File> files_;
  const bool links_;
  std::list<Opened> opened_;  // the front was used last
};

}  // namespace meron::checkpoint

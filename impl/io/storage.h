// SPDX-License-Identifier: Apache-2.0
// What one rank has on tier nvme: the engine that moves its bytes, and one file for all its states.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "base/result.h"
#include "io/io_engine.h"
#include "io/swap_file.h"

namespace meron {

class Storage {
 public:
  // `wake` as for IoEngine::on_end. Errors: those of IoEngine::create and SwapFile::create.
  static Result<std::unique_ptr<Storage>> open(const std::string& directory,
                                               const IoOptions& options,
                                               std::function<void()> wake) {
    MERON_ASSIGN(auto engine, IoEngine::create(options));
    engine->on_end(std::move(wake));
    // Callers write each extent completely before they use it.
    MERON_ASSIGN(auto file, SwapFile::create(engine, directory, {.prewrite = false}));
    return std::unique_ptr<Storage>(new Storage(std::move(engine), std::move(file)));
  }

  IoEngine& engine() { return *engine_; }
  SwapFile& swap() { return *file_; }
  const std::shared_ptr<IoFile>& file() const { return file_->file(); }
  const std::string& path() const { return file_->file()->path(); }

 private:
  Storage(std::shared_ptr<IoEngine> engine, std::shared_ptr<SwapFile> file)
      : engine_(std::move(engine)), file_(std::move(file)) {}

  std::shared_ptr<IoEngine> engine_;
  std::shared_ptr<SwapFile> file_;
};

}  // namespace meron

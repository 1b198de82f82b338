// SPDX-License-Identifier: Apache-2.0
// A checkpoint that was opened or loaded, as its handle shows it: texts, numbers, and tensors to
// read.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "base/result.h"
#include "checkpoint/tensor_reader.h"
#include "saving/load.h"

namespace meron {

// Thread-safe.
class OpenedCheckpoint {
 public:
  // As open_source() finds it.
  static Result<std::shared_ptr<OpenedCheckpoint>> open(const std::string& folder,
                                                        const std::string& name);
  explicit OpenedCheckpoint(LoadReport report);

  checkpoint::TensorReader& reader() { return reader_; }
  uint64_t file_bytes() const;
  uint64_t bytes_read() const { return loaded_bytes_ + reader_.bytes_read(); }
  uint64_t missing_count() const { return missing_count_; }
  uint64_t unexpected_count() const { return unexpected_count_; }
  const std::string& path() const { return reader_.checkpoint().path; }
  const std::string& extra() const { return reader_.manifest().extra; }
  // A name per line.
  const std::string& missing() const { return missing_; }
  const std::string& unexpected() const { return unexpected_; }
  // As words_of_skipped() says it.
  const std::string& passed_over() const { return passed_over_; }
  // Composed at the first call.
  const std::string& manifest();

 private:
  checkpoint::TensorReader reader_;
  uint64_t loaded_bytes_ = 0, missing_count_ = 0, unexpected_count_ = 0;
  std::string missing_, unexpected_, passed_over_;
  std::once_flag composed_;
  std::string manifest_;
};

}  // namespace meron

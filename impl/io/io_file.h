// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "os/direct_file.h"

namespace meron {

// A file that an engine reads and writes. Transfers keep it; it closes with the last of them.
class IoFile {
 public:
  explicit IoFile(DirectFile file) : file_(std::move(file)) {}
  ~IoFile() {
    if (forget_) forget_();
  }
  IoFile(const IoFile&) = delete;
  IoFile& operator=(const IoFile&) = delete;

  const DirectFile& file() const { return file_; }
  const std::string& path() const { return file_.path(); }

  // True if full pages bypass the page cache: as the file was opened, until the kernel refuses a
  // transfer of it.
  bool direct() const { return file_.direct() && !refused_.load(std::memory_order_relaxed); }
  void stop_direct() { refused_.store(true, std::memory_order_relaxed); }

  // Reads go through the page cache from now on and leave their bytes in it: for bytes that other
  // processes of the host read too. Before the file's first transfer.
  void use_page_cache() {
    stop_direct();
    keeps_cached_ = true;
  }
  bool keeps_cached() const { return keeps_cached_; }
  // For the backend: the kernel's slot of file().fd(), if it has one, and the function that
  // releases it. Set before the file is shared.
  uint32_t slot = UINT32_MAX;
  void on_close(std::function<void()> forget) { forget_ = std::move(forget); }

 private:
  DirectFile file_;
  std::atomic<bool> refused_{false};
  bool keeps_cached_ = false;
  std::function<void()> forget_;
};

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
// A directory on a disk, engines of both backends, and memory with known bytes.
#pragma once

#include <gtest/gtest.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "io/fault_plan.h"
#include "io/io_engine.h"

namespace meron::test {

inline bool in_memory(const std::string& directory) {
  struct statfs system {};
  return ::statfs(directory.c_str(), &system) != 0 || system.f_type == TMPFS_MAGIC ||
         system.f_type == RAMFS_MAGIC;
}

// An empty directory, removed with all its content; "" if neither TMPDIR, /tmp nor the current
// directory is on a disk.
class DiskDirectory {
 public:
  DiskDirectory() {
    for (const std::string& base : {::testing::TempDir(), std::string("./")}) {
      std::string path = base + "meron-io-XXXXXX";
      if (in_memory(base) || ::mkdtemp(path.data()) == nullptr) continue;
      path_ = std::filesystem::absolute(path).string();
      return;
    }
  }
  ~DiskDirectory() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  DiskDirectory(const DiskDirectory&) = delete;
  DiskDirectory& operator=(const DiskDirectory&) = delete;

  const std::string& path() const { return path_; }
  bool found() const { return !path_.empty(); }
  bool empty() const { return std::filesystem::is_empty(path_); }

 private:
  std::string path_;
};

#define MERON_NEED_DISK(directory) \
  if (!(directory).found()) GTEST_SKIP() << "no directory on a disk: set TMPDIR to one"

// Page-aligned memory.
class Bytes {
 public:
  explicit Bytes(uint64_t bytes)
      : size_(bytes),
        data_(static_cast<std::byte*>(std::aligned_alloc(4096, (bytes / 4096 + 1) * 4096)),
              std::free) {
    std::fill(data(), data() + bytes, std::byte{0});
  }
  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  uint64_t size() const { return size_; }
  std::vector<std::byte> copy() const { return {data(), data() + size_}; }
  void draw(std::mt19937_64& random) { draw(random, 0, size_); }
  // Eight bytes per number: a number per byte took most of these tests under the sanitizers.
  void draw(std::mt19937_64& random, uint64_t from, uint64_t bytes) {
    for (uint64_t i = 0; i < bytes; i += sizeof(uint64_t)) {
      const uint64_t word = random();
      std::memcpy(data_.get() + from + i, &word, std::min(sizeof word, bytes - i));
    }
  }

 private:
  uint64_t size_;
  std::unique_ptr<std::byte, void (*)(void*)> data_;
};

inline Status finish(const std::shared_ptr<IoTicket>& ticket) {
  constexpr int64_t kLong = 60'000'000'000;
  if (!ticket->wait(kLong)) return Error(MERON_E_TIMEOUT, "the ticket does not end");
  return ticket->status();
}

inline std::string text_of(const Status& status) {
  if (status.ok()) return "ok";
  const ErrorInfo& info = status.error().info();
  return std::to_string(info.code) + ": " + info.subject + ": " + info.what + "; " + info.advice;
}

#define EXPECT_OK(status)                                         \
  do {                                                            \
    const ::meron::Status status_ = (status);                     \
    EXPECT_TRUE(status_.ok()) << ::meron::test::text_of(status_); \
  } while (0)

// Resets the fault plan when it goes.
class Faults {
 public:
  explicit Faults(const std::string& plan) { EXPECT_OK(set_io_faults(plan)); }
  ~Faults() { (void)set_io_faults(""); }
  Faults(const Faults&) = delete;
  Faults& operator=(const Faults&) = delete;
};

using Backend = IoOptions::Backend;

inline std::string name_of(const ::testing::TestParamInfo<Backend>& info) {
  return info.param == Backend::uring ? "uring" : "threads";
}

// A test of either backend on a disk.
class OnDisk : public ::testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    MERON_NEED_DISK(directory_);
    if (GetParam() == Backend::uring && !io_uring()) GTEST_SKIP() << "no io_uring here";
  }

  static bool io_uring() { return IoEngine::create({.backend = Backend::uring}).ok(); }

  std::shared_ptr<IoEngine> engine(IoOptions options = {}) const {
    options.backend = GetParam();
    auto made = IoEngine::create(options);
    EXPECT_TRUE(made.ok()) << made.error().info().what;
    return *made;
  }

  std::shared_ptr<IoFile> file(const std::shared_ptr<IoEngine>& engine) const {
    auto made = DirectFile::create(directory_.path());
    EXPECT_TRUE(made.ok()) << made.error().info().what;
    auto added = engine->add(std::move(made).value());
    EXPECT_TRUE(added.ok());
    return *added;
  }

  DiskDirectory directory_;
};

}  // namespace meron::test

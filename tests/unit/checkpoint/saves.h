// SPDX-License-Identifier: Apache-2.0
// A directory of checkpoints on a disk, and what is in it.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "os/file.h"
#include "saved.h"

namespace meron::test {

class CommitTest : public ::testing::Test {
 protected:
  void SetUp() override {
    MERON_NEED_DISK(directory_);
    root_ = directory_.path() + "/checkpoints";
  }

  Status save(const std::string& name, uint64_t step, bool overwrite = false,
              std::vector<std::string>* warnings = nullptr) const {
    const auto staging = make_staging(kTestBlock);
    return test::save(staging, root_, name, step, overwrite, warnings);
  }
  // The step of the newest complete checkpoint, after a check of each byte; 0: there is none.
  uint64_t newest_step() const {
    const auto newest = checkpoint::newest_complete(root_);
    if (!newest.ok()) return 0;
    EXPECT_OK(check_whole(make_staging(kTestBlock), *newest));
    return newest->manifest.step;
  }
  // All names in ROOT.
  std::set<std::string> names() const { return names_in(root_); }
  static std::set<std::string> names_in(const std::string& directory) {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(directory)) {
      names.insert(entry.path().filename().string());
    }
    return names;
  }
  std::string latest() const {
    const auto text = read_file(root_ + "/latest", 1000);
    return text.ok() ? *text : "none";
  }

  // No engine outlives a call: processes are forked between calls, and ThreadSanitizer requires
  // that no threads run then.
  DiskDirectory directory_;
  std::string root_;
};

}  // namespace meron::test

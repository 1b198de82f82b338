// SPDX-License-Identifier: Apache-2.0
// Checkpoints removed by their names.
#include "checkpoint/remove.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <set>

#include "../os/child_process.h"
#include "io/fault_plan.h"
#include "io/kill_point.h"
#include "saves.h"

namespace meron {
namespace {

namespace fs = std::filesystem;

using checkpoint::remove_checkpoint;
using test::CommitTest;

class RemoveTest : public CommitTest {
 protected:
  meron_status failure_of(const std::string& name) const {
    const Status removed = remove_checkpoint(root_, name);
    return removed.ok() ? MERON_OK : removed.error().code();
  }
};

TEST_F(RemoveTest, TheNewestThatIsLeftIsTheLatest) {
  EXPECT_OK(save("a", 1));
  EXPECT_OK(save("b", 2));
  EXPECT_OK(save("c", 3));
  EXPECT_OK(remove_checkpoint(root_, "b"));
  EXPECT_EQ(latest(), "c\n");
  EXPECT_OK(remove_checkpoint(root_, "c"));
  EXPECT_EQ(latest(), "a\n");
  EXPECT_EQ(newest_step(), 1U);
  EXPECT_EQ(names(), (std::set<std::string>{"a", "latest"}));
  EXPECT_OK(remove_checkpoint(root_, "a"));
  EXPECT_EQ(names(), (std::set<std::string>{}));
  EXPECT_EQ(failure_of("a"), MERON_E_NOT_FOUND);
  EXPECT_OK(save("a", 1));
}

TEST_F(RemoveTest, WhatIsNoCheckpointStays) {
  EXPECT_OK(save("a", 1));
  fs::create_directories(root_ + "/mine");
  test::write_text(root_ + "/mine/data", "mine");
  fs::create_directories(root_ + "/folder/meron.json");
  test::write_text(root_ + "/file", "mine");
  fs::create_directory_symlink("a", root_ + "/link");
  EXPECT_EQ(failure_of("mine"), MERON_E_ARGUMENT);
  EXPECT_EQ(failure_of("folder"), MERON_E_ARGUMENT);
  EXPECT_EQ(failure_of("file"), MERON_E_ARGUMENT);
  EXPECT_EQ(failure_of("link"), MERON_E_AUTH);
  EXPECT_EQ(failure_of("none"), MERON_E_NOT_FOUND);
  for (const char* name : {"", ".", "..", "a/..", "../checkpoints/a", ".saving.lock", "latest"}) {
    EXPECT_EQ(failure_of(name), MERON_E_ARGUMENT) << name;
  }
  EXPECT_EQ(names(), (std::set<std::string>{"a", "mine", "folder", "file", "link", "latest"}));
  EXPECT_EQ(*read_file(root_ + "/mine/data", 100), "mine");
  EXPECT_EQ(newest_step(), 1U);
}

TEST_F(RemoveTest, ALinkInACheckpointIsNotFollowed) {
  EXPECT_OK(save("a", 1));
  fs::create_directories(root_ + "/mine");
  test::write_text(root_ + "/mine/data", "mine");
  fs::create_directory_symlink(root_ + "/mine", root_ + "/a/link");
  EXPECT_OK(remove_checkpoint(root_, "a"));
  EXPECT_EQ(*read_file(root_ + "/mine/data", 100), "mine");
}

TEST_F(RemoveTest, AnIncompleteOneGoesAndADamagedManifestStays) {
  EXPECT_OK(save("a", 1));
  EXPECT_OK(save("b", 2));
  fs::remove(root_ + "/a/rank-0.safetensors");
  EXPECT_OK(remove_checkpoint(root_, "a"));
  test::write_text(root_ + "/b/meron.json", "{}");
  EXPECT_NE(failure_of("b"), MERON_OK);
  EXPECT_TRUE(fs::exists(root_ + "/b/rank-0.safetensors"));
}

TEST_F(RemoveTest, OneThatIsOpenStays) {
  EXPECT_OK(save("a", 1));
  {
    const auto open = checkpoint::open_checkpoint(root_ + "/a");
    ASSERT_TRUE(open.ok());
    EXPECT_EQ(failure_of("a"), MERON_E_STATE);
    EXPECT_OK(test::check_whole(test::make_staging(test::kTestBlock), *open));
  }
  EXPECT_OK(remove_checkpoint(root_, "a"));
}

TEST_F(RemoveTest, OneThatAnotherProcessReadsStays) {
  EXPECT_OK(save("a", 1));
  test::Child reader([&] {
    const auto open = checkpoint::open_checkpoint(root_ + "/a");
    CHILD_EXPECT(open.ok());
    test::write_text(root_ + "/reads", "");
    while (true) pause();
    return 0;
  });
  while (!fs::exists(root_ + "/reads")) usleep(1000);
  EXPECT_EQ(failure_of("a"), MERON_E_STATE);
  reader.kill(SIGKILL);
  (void)reader.wait();
  EXPECT_OK(remove_checkpoint(root_, "a"));
}

TEST_F(RemoveTest, OneThatIsBeingReplacedStays) {
  EXPECT_OK(save("a", 1));
  {
    const auto saving = checkpoint::Saving::begin(root_, "a", {.overwrite = true});
    ASSERT_TRUE(saving.ok());
    EXPECT_EQ(failure_of("a"), MERON_E_STATE);
  }
  EXPECT_OK(remove_checkpoint(root_, "a"));
}

// For every place between two system calls: it is there as it was, or gone, and the next save
// removes what is left.
TEST_F(RemoveTest, AKillAnywhereLeavesItWholeOrGone) {
  if (!have_fault_points()) GTEST_SKIP() << "this build has no fault points";
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "AddressSanitizer's build shows the same";
#endif
  bool gone = false;
  for (int k = 1;; ++k) {
    SCOPED_TRACE(k);
    ASSERT_LT(k, 100);
    EXPECT_OK(save("a", 1));
    EXPECT_OK(save("b", 2));
    const int status = test::run_in_child([&] {
      CHILD_EXPECT(set_kill_point(fmt::format("*:{}", k)).ok());
      CHILD_EXPECT(remove_checkpoint(root_, "b").ok());
      return 0;
    });
    ASSERT_TRUE(status == 0 || status == 1000 + SIGKILL) << status;
    const uint64_t step = newest_step();
    EXPECT_TRUE(step == 1 || (step == 2 && !gone)) << step;
    gone = step == 1;
    EXPECT_OK(save("c", 3));
    std::set<std::string> left = {"a", "c", "latest"};
    if (!gone) left.insert("b");
    EXPECT_EQ(names(), left);
    fs::remove_all(root_);
    if (status == 0) break;
  }
  EXPECT_TRUE(gone);
}

}  // namespace
}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
// What saves leave that are killed, or of which a call fails, at each place where they can be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>

#include <cerrno>
#include <filesystem>
#include <set>
#include <utility>

#include "../os/child_process.h"
#include "io/fault_plan.h"
#include "io/kill_point.h"
#include "saves.h"

namespace meron {
namespace {

namespace fs = std::filesystem;

// Runs only if the build has fault points.
class FailingCommitTest : public test::CommitTest {
 protected:
  void SetUp() override {
    CommitTest::SetUp();
    if (!have_fault_points()) GTEST_SKIP() << "this build has no fault points";
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP()
        << "one thread saves: AddressSanitizer's build shows the same in a tenth of the time";
#endif
  }
  // For every place between two system calls: whole is the old checkpoint or the new one, and the
  // next save removes what is left.
  void kill_everywhere(bool exchange) const;
};

// For every call of a kind, failing once or from then on: the save fails and names the file, and
// the newest checkpoint is the old one; or the save is published and warns. The next save works.
TEST_F(FailingCommitTest, EveryFailingCallLeavesTheOldCheckpointOrTheSaveSucceeds) {
  for (const char* call : {"mkdir", "open", "write", "fsync", "rename"}) {
    for (const auto& [more, error] : {std::pair("", "EIO"), {"+", "EIO"}, {"", "ENOSPC"}}) {
      for (int n = 1;; ++n) {
        SCOPED_TRACE(fmt::format("{}:{}{}:{}", call, n, more, error));
        ASSERT_LT(n, 100);
        EXPECT_OK(save("a", 1, true));
        test::write_text(root_ + "/notes", "mine");
        Status status = Ok{};
        std::vector<std::string> warnings;
        {
          const test::Faults faults(fmt::format("{}:{}{}:{}", call, n, more, error));
          status = save("a", 2, true, &warnings);
        }
        if (!status.ok()) {
          const bool full = error == std::string("ENOSPC");
          EXPECT_EQ(status.error().code(), full ? MERON_E_NO_SPACE : MERON_E_IO);
          EXPECT_THAT(status.error().info().subject, testing::HasSubstr(root_));
          EXPECT_THAT(status.error().info().what, testing::HasSubstr(error));
        }
        const uint64_t step = newest_step();
        if (status.ok()) {
          EXPECT_EQ(step, 2U);
        } else {
          EXPECT_EQ(step, 1U);
        }
        EXPECT_EQ(*read_file(root_ + "/notes", 100), "mine");
        EXPECT_OK(save("b", 3));
        EXPECT_EQ(names(), (std::set<std::string>{"a", "b", "latest", "notes"}));
        fs::remove_all(root_);
        if (status.ok() && warnings.empty()) break;
      }
    }
  }
}

void FailingCommitTest::kill_everywhere(bool exchange) const {
  bool replaced = false;
  for (int k = 1;; ++k) {
    SCOPED_TRACE(k);
    ASSERT_LT(k, 200);
    ASSERT_TRUE(save("a", 1, true).ok());
    const int status = test::run_in_child([&] {
      if (!exchange) CHILD_EXPECT(test::deny_syscall(SYS_renameat2, EINVAL));
      const auto own = test::make_staging(test::kTestBlock);
      CHILD_EXPECT(set_kill_point(fmt::format("*:{}", k)).ok());
      CHILD_EXPECT(test::save(own, root_, "a", 2, true).ok());
      CHILD_EXPECT(kill_points_passed() < static_cast<uint64_t>(k));
      return 0;
    });
    ASSERT_TRUE(status == 0 || status == 1000 + SIGKILL) << status;
    const uint64_t step = newest_step();
    ASSERT_NE(step, 0U) << "all are lost";
    EXPECT_TRUE(step == 1 || step == 2);
    EXPECT_TRUE(!replaced || step == 2) << "the new one was there at an earlier point";
    replaced = step == 2;
    // Its own name has it, at once or after the next save.
    if (exchange) {
      EXPECT_TRUE(checkpoint::resolve(root_, "a").ok());
    }
    EXPECT_OK(save("b", 3));
    const auto named = checkpoint::resolve(root_, "a");
    ASSERT_TRUE(named.ok());
    EXPECT_EQ(named->manifest.step, step);
    EXPECT_OK(test::check_whole(test::make_staging(test::kTestBlock), *named));
    EXPECT_EQ(names(), (std::set<std::string>{"a", "b", "latest"}));
    fs::remove_all(root_);
    if (status == 0) {
      EXPECT_TRUE(replaced);
      EXPECT_GT(k, 20) << "points were passed";
      break;
    }
  }
}

TEST_F(FailingCommitTest, AKillAnywhereLeavesTheOldOrTheNewCheckpoint) {
  kill_everywhere(true);
}

TEST_F(FailingCommitTest, AKillAnywhereWherePathsCannotBeExchangedLosesNeither) {
  kill_everywhere(false);
}

// A save of a new name, with none before it.
TEST_F(FailingCommitTest, AKillOfTheFirstSaveLeavesNoneOrAWholeOne) {
  for (int k = 1;; ++k) {
    SCOPED_TRACE(k);
    ASSERT_LT(k, 200);
    const int status = test::run_in_child([&] {
      const auto own = test::make_staging(test::kTestBlock);
      CHILD_EXPECT(set_kill_point(fmt::format("*:{}", k)).ok());
      CHILD_EXPECT(test::save(own, root_, "a", 2).ok());
      return 0;
    });
    ASSERT_TRUE(status == 0 || status == 1000 + SIGKILL) << status;
    const auto entries = checkpoint::list(root_);
    if (entries.ok() && !entries->empty()) {
      EXPECT_EQ(entries->size(), 1U);
      EXPECT_TRUE(entries->front().complete()) << entries->front().defect;
      EXPECT_EQ(newest_step(), 2U);
    }
    fs::remove_all(root_);
    if (status == 0) break;
  }
}

}  // namespace
}  // namespace meron

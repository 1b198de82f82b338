// SPDX-License-Identifier: Apache-2.0
// What other processes see while a directory of checkpoints changes, and after kills at any time.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <random>
#include <thread>

#include "../os/child_process.h"
#include "checkpoint/prune.h"
#include "io/fault_plan.h"
#include "io/kill_point.h"
#include "saved.h"

namespace meron {
namespace {

namespace fs = std::filesystem;

class Recovery : public ::testing::Test {
 protected:
  void SetUp() override {
    MERON_NEED_DISK(directory_);
    root_ = directory_.path() + "/checkpoints";
    fs::create_directories(root_);
  }
  std::string at(const std::string& name) const { return root_ + "/" + name; }

  static std::string small_manifest(const std::string& name, uint64_t step) {
    checkpoint::Manifest manifest = test::make_manifest(name, step);
    test::add_file(manifest, "file", 5, {1});
    return checkpoint::to_json(manifest);
  }
  // No engine outlives a call: ThreadSanitizer wants no threads to be there at a fork.
  static Status save(const std::string& root, const std::string& name, uint64_t step,
                     bool overwrite = false) {
    return test::save(test::make_staging(test::kTestBlock), root, name, step, overwrite);
  }
  void make(const std::string& name, uint64_t step) const {
    fs::create_directories(at(name));
    test::write_text(at(name) + "/file", "12345");
    test::write_text(at(name) + "/meron.json", small_manifest(name, step));
  }

  test::DiskDirectory directory_;
  std::string root_;
};

TEST_F(Recovery, AKillBetweenTwoRenamesKeepsTheOldCheckpointOfTheLongestName) {
  if (!have_fault_points()) GTEST_SKIP() << "this build has no fault points";
  const std::string name(checkpoint::kMaxCheckpointName, 'a');
  int killed = 0;
  for (int k = 1; k <= 6; ++k) {
    SCOPED_TRACE(k);
    ASSERT_TRUE(save(root_, name, 1, true).ok());
    const int status = test::run_in_child([&] {
      CHILD_EXPECT(test::deny_syscall(SYS_renameat2, EINVAL));
      CHILD_EXPECT(set_kill_point(fmt::format("rename:{}", k)).ok());
      CHILD_EXPECT(save(root_, name, 2, true).ok());
      return 0;
    });
    killed += status == 1000 + SIGKILL ? 1 : 0;
    const auto newest = checkpoint::newest_complete(root_);
    ASSERT_TRUE(newest.ok()) << test::text_of(newest.error());
    EXPECT_OK(test::check_whole(test::make_staging(test::kTestBlock), *newest));
  }
  EXPECT_GE(killed, 4);
}

TEST_F(Recovery, AReplacedCheckpointStaysUntilACompleteOneHasItsName) {
  make("a", 7);
  fs::rename(at("a"), at("a.replaced-01234567"));
  fs::create_directories(at("a"));
  test::write_text(at("a/notes"), "of others");
  ASSERT_TRUE(save(root_, "b", 1).ok());
  EXPECT_TRUE(fs::exists(at("a.replaced-01234567/meron.json"))) << "the only copy of step 7";
  EXPECT_TRUE(fs::exists(at("a/notes")));
  fs::remove_all(at("a"));
  make("a", 8);
  ASSERT_TRUE(save(root_, "c", 2).ok());
  EXPECT_FALSE(fs::exists(at("a.replaced-01234567")));
}

TEST_F(Recovery, PruningMakesRoomOnAFullDisk) {
  for (uint64_t step = 1; step <= 3; ++step) make(fmt::format("step-{}", step), step);
  EXPECT_EQ(test::run_in_child([&] {
              CHILD_EXPECT(test::deny_syscall(SYS_pwrite64, ENOSPC));
              CHILD_EXPECT(checkpoint::prune(root_, 1).ok());
              return 0;
            }),
            0);
  EXPECT_FALSE(fs::exists(at("step-2")));
  EXPECT_TRUE(fs::exists(at("step-3")));
}

TEST_F(Recovery, APathUpwardFromALinkLeadsWhereTheKernelSays) {
  fs::create_directories(directory_.path() + "/elsewhere/deep");
  fs::create_symlink(directory_.path() + "/elsewhere/deep", at("link"));
  ASSERT_TRUE(save(at("link/../out"), "a", 1).ok());
  EXPECT_TRUE(fs::exists(directory_.path() + "/elsewhere/out/a/meron.json"));
  EXPECT_TRUE(checkpoint::resolve(at("link/../out"), "a").ok());
}

TEST_F(Recovery, AReaderAlwaysFindsOneWhileASaverKeepsOne) {
  make("step-0", 0);
  std::atomic<bool> ended{false};
  std::thread saver([&] {
    for (uint64_t step = 1; step < 100; ++step) {
      const std::string name = fmt::format("step-{}", step);
      const auto saving = checkpoint::Saving::begin(root_, name);
      ASSERT_TRUE(saving.ok());
      test::write_text((*saving)->directory() + "/file", "12345");
      EXPECT_OK((*saving)->commit(small_manifest(name, step)));
      EXPECT_TRUE(checkpoint::prune(root_, 1).ok());
    }
  });
  std::thread reader([&] {
    while (!ended) {
      const auto newest = checkpoint::newest_complete(root_);
      EXPECT_TRUE(newest.ok()) << test::text_of(newest.error());
    }
  });
  saver.join();
  ended = true;
  reader.join();
}

// One saver of changing names and one of a fixed name, which prune too, killed at any time.
TEST_F(Recovery, KilledSaversLoseNoCheckpointThatWasCommitted) {
  const uint64_t seed = std::random_device{}();
  std::mt19937_64 random(seed);
  ASSERT_TRUE(save(root_, "a", 1).ok());
  uint64_t committed = 1;
  for (uint64_t step = 2; step < 32; ++step) {
    SCOPED_TRACE(fmt::format("seed {}, step {}", seed, step));
    const bool exchange = random() % 3 != 0;
    const std::string changing = random() % 2 == 0 ? "a" : "b";
    const auto save_and_prune = [&](const std::string& name) {
      if (!exchange) CHILD_EXPECT(test::deny_syscall(SYS_renameat2, EINVAL));
      CHILD_EXPECT(save(root_, name, step, true).ok());
      CHILD_EXPECT(checkpoint::prune(root_, 2).ok());
      return 0;
    };
    test::Child one([&] { return save_and_prune(changing); });
    test::Child two([&] { return save_and_prune("c"); });
    ::usleep(static_cast<useconds_t>(random() % 60'000));
    if (random() % 4 != 0) one.kill(SIGKILL);
    if (random() % 2 != 0) two.kill(SIGKILL);
    for (const int status : {one.wait(), two.wait()}) {
      EXPECT_TRUE(status == 0 || status == 1000 + SIGKILL) << status;
      if (status == 0) committed = step;
    }
    const auto newest = checkpoint::newest_complete(root_);
    ASSERT_TRUE(newest.ok()) << test::text_of(newest.error());
    EXPECT_OK(test::check_whole(test::make_staging(test::kTestBlock), *newest));
    EXPECT_GE(newest->manifest.step, committed);
    const auto entries = checkpoint::list(root_);
    ASSERT_TRUE(entries.ok());
    for (const auto& entry : *entries) EXPECT_TRUE(entry.complete()) << entry.defect;
  }
}

}  // namespace
}  // namespace meron

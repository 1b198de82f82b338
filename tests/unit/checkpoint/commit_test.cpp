// SPDX-License-Identifier: Apache-2.0
// How checkpoints get their names, and savers beside each other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <set>
#include <thread>
#include <vector>

#include "../os/child_process.h"
#include "checkpoint/prune.h"
#include "checkpoint/root_lock.h"
#include "io/fault_plan.h"
#include "os/file.h"
#include "saves.h"

namespace meron {
namespace {

namespace fs = std::filesystem;

using checkpoint::Saving;
using test::CommitTest;

const std::set<std::string> kWithOne = {"a", "latest"};

TEST_F(CommitTest, ASaveMakesRootAndLeavesNothingElse) {
  root_ += "/deeper/still/";
  EXPECT_OK(save("a", 1));
  EXPECT_EQ(names(), kWithOne);
  EXPECT_EQ(latest(), "a\n");
  EXPECT_EQ(newest_step(), 1U);
  std::set<std::string> files;
  for (const auto& entry : fs::directory_iterator(root_ + "/a")) {
    files.insert(entry.path().filename().string());
  }
  EXPECT_EQ(files,
            (std::set<std::string>{"meron.json", "rank-0.safetensors", "rank-1.safetensors"}));
}

TEST_F(CommitTest, ANameThatIsTakenIsRefusedUnlessItIsOverwritten) {
  EXPECT_OK(save("a", 1));
  const Status taken = save("a", 2);
  ASSERT_FALSE(taken.ok());
  EXPECT_EQ(taken.error().code(), MERON_E_DUPLICATE);
  EXPECT_EQ(taken.error().info().subject, root_ + "/a");
  EXPECT_EQ(newest_step(), 1U);
  EXPECT_OK(save("a", 2, true));
  EXPECT_EQ(newest_step(), 2U);
  EXPECT_EQ(names(), kWithOne);
  // A step that is lower takes the name all the same.
  EXPECT_OK(save("a", 1, true));
  EXPECT_EQ(newest_step(), 1U);
}

TEST_F(CommitTest, WhatIsNoCheckpointIsNotOverwritten) {
  fs::create_directories(root_ + "/mine");
  test::write_text(root_ + "/mine/notes", "mine");
  test::write_text(root_ + "/file", "mine");
  fs::create_symlink(root_ + "/mine", root_ + "/link");
  for (const char* name : {"mine", "file", "link"}) {
    const Status status = save(name, 1, true);
    ASSERT_FALSE(status.ok()) << name;
    EXPECT_EQ(status.error().code(), MERON_E_DUPLICATE) << name;
  }
  EXPECT_EQ(*read_file(root_ + "/mine/notes", 100), "mine");
  EXPECT_EQ(names(), (std::set<std::string>{"mine", "file", "link"}));
}

TEST_F(CommitTest, WhatIsNoNameIsRefused) {
  for (const std::string& name :
       {std::string(), std::string("."), std::string(".."), std::string("a/b"), std::string("/a"),
        std::string(".a"), std::string(201, 'a'), std::string("a\0b", 3), std::string("a\nb"),
        std::string("\xff"), std::string("latest")}) {
    const Status status = save(name, 1);
    ASSERT_FALSE(status.ok()) << name;
    EXPECT_EQ(status.error().code(), MERON_E_ARGUMENT) << name;
  }
  EXPECT_FALSE(fs::exists(root_));
  for (const std::string& name : {std::string(200, 'a'), std::string("Schritt-\xc3\xa4"),
                                  std::string("a.b"), std::string("-a b")}) {
    EXPECT_OK(save(name, 1));
  }
  EXPECT_EQ(Saving::begin("", "a").error().code(), MERON_E_ARGUMENT);
}

TEST_F(CommitTest, AbandonedSavesLeaveNothing) {
  {
    const auto saving = Saving::begin(root_, "a");
    ASSERT_TRUE(saving.ok());
    test::write_text((*saving)->directory() + "/file", "x");
    EXPECT_EQ((*saving)->path(), root_ + "/a");
  }
  EXPECT_EQ(names(), (std::set<std::string>{}));
  const auto saving = Saving::begin(root_, "a");
  EXPECT_OK((*saving)->abandon());
  EXPECT_EQ((*saving)->commit("").error().code(), MERON_E_STATE);
  EXPECT_EQ(names(), (std::set<std::string>{}));
}

TEST_F(CommitTest, OneProcessAtATimeHoldsTheLockWhoseFileIsRemoved) {
  fs::create_directories(root_);
  std::atomic<int> holders = 0;
  {
    std::vector<std::jthread> savers;  // each opens the file itself, as a process does
    for (int i = 0; i < 4; ++i) {
      savers.emplace_back([&] {
        for (int round = 0; round < 20; ++round) {
          const auto lock = checkpoint::lock_root(root_);
          ASSERT_TRUE(lock.ok());
          EXPECT_EQ(holders.fetch_add(1), 0);
          EXPECT_TRUE(fs::exists(root_ + "/.saving.lock"));
          std::this_thread::yield();
          EXPECT_EQ(holders.fetch_sub(1), 1);
        }
      });
    }
  }
  EXPECT_EQ(names(), (std::set<std::string>{}));
}

TEST_F(CommitTest, AForkedChildAbandonsNothingOfItsParent) {
  auto saving = Saving::begin(root_, "a");
  EXPECT_EQ(test::run_in_child([&] {
              saving->reset();
              return 0;
            }),
            0);
  EXPECT_TRUE(fs::exists((*saving)->directory()));
}

TEST_F(CommitTest, WhatIsNotWholeIsNotPublished) {
  const auto manifest_of = [](uint64_t bytes) {
    auto manifest = test::make_manifest("a", 1);
    test::add_file(manifest, "file", bytes, {1});
    return checkpoint::to_json(manifest);
  };
  const auto commit = [&](const std::string& text) {
    const auto saving = Saving::begin(root_, "a");
    test::write_text((*saving)->directory() + "/file", "12345");
    return (*saving)->commit(text);
  };
  EXPECT_EQ(commit(manifest_of(6)).error().code(), MERON_E_CORRUPT);
  EXPECT_FALSE(commit("{").ok());
  EXPECT_EQ(names(), (std::set<std::string>{}));
  EXPECT_OK(commit(manifest_of(5)));
}

TEST_F(CommitTest, ASecondSaverOfANameIsToldOfTheFirst) {
  const auto first = Saving::begin(root_, "a");
  ASSERT_TRUE(first.ok());
  const auto second = Saving::begin(root_, "a");
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code(), MERON_E_STATE);
  EXPECT_THAT(second.error().info().what,
              testing::HasSubstr("another save of a is under way in process " +
                                 std::to_string(::getpid())));
  EXPECT_TRUE(fs::exists((*first)->directory())) << "a begin does not sweep what is owned";
  EXPECT_TRUE(Saving::begin(root_, "a-b").ok()) << "names that begin alike are others";
  EXPECT_TRUE(Saving::begin(root_, "b").ok());
}

TEST_F(CommitTest, WhatKilledSaversLeftIsSweptAndNothingElse) {
  const std::set<std::string> foreign = {"notes",           ".saving-a",    ".saving-a-0123456X",
                                         ".saving-0123456", ".latest-0123", "b.replaced-01234567"};
  fs::create_directories(root_);
  for (const std::string& name : foreign) {
    fs::create_directories(root_ + "/" + name);
    test::write_text(root_ + "/" + name + "/file", "x");
  }
  test::write_text(root_ + "/.saving-file-01234567", "a file of others");
  test::write_text(root_ + "/.latest-01234567", "left over");
  fs::create_directories(root_ + "/.saving-old-01234567/deeper");
  test::write_text(root_ + "/.saving-old-01234567/.owner", "of a process that has ended");
  EXPECT_EQ(test::run_in_child([&] {
              auto staging = test::make_staging(test::kTestBlock);
              const auto saving = Saving::begin(root_, "a");
              CHILD_EXPECT(saving.ok());
              ::kill(::getpid(), SIGKILL);
              return 0;
            }),
            1000 + SIGKILL);
  EXPECT_OK(save("c", 1));
  std::set<std::string> expected = foreign;
  expected.insert({".saving-file-01234567", "c", "latest"});
  EXPECT_EQ(names(), expected);
  for (const std::string& name : foreign) EXPECT_TRUE(fs::exists(root_ + "/" + name + "/file"));
}

TEST_F(CommitTest, WithoutLocksNothingIsSwept) {
  fs::create_directories(root_ + "/.saving-old-01234567");
  EXPECT_EQ(test::run_in_child([&] {
              CHILD_EXPECT(test::deny_syscall(SYS_flock, ENOLCK));
              auto staging = test::make_staging(test::kTestBlock);
              CHILD_EXPECT(test::save(staging, root_, "a", 1).ok());
              return 0;
            }),
            0);
  EXPECT_EQ(newest_step(), 1U);
  EXPECT_TRUE(fs::exists(root_ + "/.saving-old-01234567"));
}

TEST_F(CommitTest, OtherRanksJoinTheDirectory) {
  EXPECT_EQ(Saving::join(root_ + "/none", 50'000'000).error().code(), MERON_E_NOT_FOUND);
  fs::create_directories(root_);
  std::thread late([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    fs::create_directories(root_ + "/late");
  });
  EXPECT_OK(Saving::join(root_ + "/late", 10'000'000'000));
  late.join();
}

TEST_F(CommitTest, WherePathsCannotBeExchangedACheckpointIsOverwrittenAllTheSame) {
  EXPECT_OK(save("a", 1));
  EXPECT_EQ(test::run_in_child([&] {
              CHILD_EXPECT(test::deny_syscall(SYS_renameat2, EINVAL));
              auto staging = test::make_staging(test::kTestBlock);
              CHILD_EXPECT(test::save(staging, root_, "a", 2, true).ok());
              return 0;
            }),
            0);
  EXPECT_EQ(newest_step(), 2U);
  EXPECT_EQ(names(), kWithOne);
}

// Where each node has a folder of its own, all publish before one is final.
class PublishedTest : public CommitTest {
 protected:
  static std::string id_of(uint64_t step) { return fmt::format("{:032x}", step); }
  static std::unique_ptr<Saving> sealed(const std::string& root, uint64_t step) {
    auto saving = Saving::begin(root, "last", {.overwrite = true});
    EXPECT_TRUE(saving.ok()) << test::text_of(saving.error());
    EXPECT_OK(seal(**saving, step));
    return std::move(*saving);
  }
  static Status seal(Saving& saving, uint64_t step) {
    test::write_text(saving.directory() + "/file", "12345");
    checkpoint::Manifest manifest = test::make_manifest("last", step);
    manifest.id = id_of(step);
    test::add_file(manifest, "file", 5, {1});
    return saving.seal(checkpoint::to_json(manifest));
  }
  static void save_last(const std::string& root, uint64_t step) {
    const auto saving = sealed(root, step);
    EXPECT_OK(saving->publish());
    saving->finish();
    EXPECT_THAT(saving->warnings(), testing::IsEmpty());
  }
  static std::string id_in(const std::string& root) {
    const auto named = checkpoint::resolve(root, "last");
    return named.ok() ? named->manifest.id : test::text_of(named.error());
  }
};

TEST_F(PublishedTest, AFailureOnOneNodeLeavesTheFormerCheckpointOnAll) {
  if (!have_fault_points()) GTEST_SKIP() << "this build has no fault points";
  const std::string roots[] = {root_ + "/node-0", root_ + "/node-1"};
  for (const std::string& root : roots) save_last(root, 1);
  const auto first = sealed(roots[0], 2), second = sealed(roots[1], 2);
  EXPECT_OK(first->publish());
  EXPECT_EQ(id_in(roots[0]), id_of(2));
  {
    const test::Faults faults("rename:1:EIO");
    EXPECT_EQ(second->publish().error().code(), MERON_E_IO);
  }
  for (const auto* saving : {&first, &second}) EXPECT_OK((*saving)->withdraw());
  for (const std::string& root : roots) {
    EXPECT_EQ(id_in(root), id_of(1));
    EXPECT_EQ(names_in(root), (std::set<std::string>{"last", "latest"}));
    EXPECT_EQ(names_in(root + "/last"), (std::set<std::string>{"file", "meron.json"}));
  }
}

TEST_F(PublishedTest, AFailedLastSyncLeavesTheFormerCheckpoint) {
  if (!have_fault_points()) GTEST_SKIP() << "this build has no fault points";
  save_last(root_, 1);
  const auto saving = sealed(root_, 2);
  {
    const test::Faults faults("fsync:2:EIO");  // the first is that of the directory
    EXPECT_EQ(saving->publish().error().code(), MERON_E_IO);
  }
  EXPECT_EQ(id_in(root_), id_of(2));
  EXPECT_OK(saving->withdraw());
  EXPECT_EQ(id_in(root_), id_of(1));
}

// Peers wait longer for a rank that reports progress: removing takes as long as the files are
// large.
TEST_F(PublishedTest, RemovingReportsProgress) {
  int removed = 0;
  const auto progress = [&] { ++removed; };
  save_last(root_, 1);
  for (const bool stays : {true, false}) {
    auto saving = Saving::begin(root_, "last", {.overwrite = true, .progress = progress});
    ASSERT_TRUE(saving.ok());
    EXPECT_OK(seal(**saving, 2));
    EXPECT_OK((*saving)->publish());
    removed = 0;
    if (stays) {
      (*saving)->finish();
    } else {
      EXPECT_OK((*saving)->withdraw());
    }
    EXPECT_GE(removed, 3) << "a file, a manifest and their directory";
  }
  EXPECT_OK(save("later", 5));
  removed = 0;
  EXPECT_EQ(checkpoint::prune(root_, 1, {}, {}, progress)->size(), 1U);
  EXPECT_GE(removed, 3);
}

TEST_F(PublishedTest, ANewNameThatIsWithdrawnIsFree) {
  const auto saving = sealed(root_, 2);
  EXPECT_OK(saving->publish());
  EXPECT_OK(saving->withdraw());
  EXPECT_EQ(names(), (std::set<std::string>{}));
  saving->finish();
  EXPECT_EQ(names(), (std::set<std::string>{}));
}

TEST_F(PublishedTest, OtherSavesLeaveTheFormerCheckpointAloneUntilOneIsFinal) {
  save_last(root_, 1);
  const auto saving = sealed(root_, 2);
  EXPECT_OK(saving->publish());
  EXPECT_OK(save("b", 3));
  EXPECT_EQ(Saving::begin(root_, "last", {.overwrite = true}).error().code(), MERON_E_STATE);
  EXPECT_OK(saving->withdraw());
  EXPECT_EQ(id_in(root_), id_of(1));
}

TEST_F(PublishedTest, ACheckpointThatAnotherSaveReplacedIsNotWithdrawn) {
  const auto saving = sealed(root_, 1);
  EXPECT_OK(saving->publish());
  save_last(root_, 2);
  EXPECT_EQ(saving->withdraw().error().code(), MERON_E_STATE);
  EXPECT_EQ(id_in(root_), id_of(2));
}

TEST_F(PublishedTest, WherePathsCannotBeExchangedTheFormerCheckpointGetsItsNameBack) {
  save_last(root_, 1);
  EXPECT_EQ(test::run_in_child([&] {
              CHILD_EXPECT(test::deny_syscall(SYS_renameat2, EINVAL));
              const auto saving = sealed(root_, 2);
              CHILD_EXPECT(saving->publish().ok());
              CHILD_EXPECT(id_in(root_) == id_of(2));
              CHILD_EXPECT(saving->withdraw().ok());
              return 0;
            }),
            0);
  EXPECT_EQ(id_in(root_), id_of(1));
  EXPECT_EQ(names(), (std::set<std::string>{"last", "latest"}));
}

TEST_F(CommitTest, SaversBesideEachOtherDisturbNone) {
  constexpr int kSavers = 3, kSaves = 6;
  std::vector<std::thread> savers;
  for (int saver = 0; saver < kSavers; ++saver) {
    savers.emplace_back([&, saver] {
      const auto staging = test::make_staging(test::kTestBlock);
      for (int i = 0; i < kSaves; ++i) {
        EXPECT_OK(test::save(staging, root_, fmt::format("{}-{}", saver, i),
                             static_cast<uint64_t>(saver * 100 + i + 1)));
        const auto pruned = checkpoint::prune(root_, 5);
        EXPECT_TRUE(pruned.ok());
      }
    });
  }
  for (std::thread& saver : savers) saver.join();
  EXPECT_EQ(newest_step(), (kSavers - 1) * 100 + kSaves);
  const auto entries = checkpoint::list(root_);
  ASSERT_TRUE(entries.ok());
  EXPECT_EQ(entries->size(), 5U);
  EXPECT_EQ(names().size(), 5U + 1U);
}

TEST_F(CommitTest, SaversOfOneNameTakeTurnsOrAreRefused) {
  constexpr int kSavers = 3, kSaves = 6;
  std::atomic<int> saved{0};
  std::vector<std::thread> savers;
  for (int saver = 0; saver < kSavers; ++saver) {
    savers.emplace_back([&, saver] {
      const auto staging = test::make_staging(test::kTestBlock);
      for (int i = 0; i < kSaves; ++i) {
        const Status status =
            test::save(staging, root_, "a", static_cast<uint64_t>(saver + 1), true);
        if (status.ok()) {
          ++saved;
        } else {
          EXPECT_EQ(status.error().code(), MERON_E_STATE) << test::text_of(status);
        }
      }
    });
  }
  for (std::thread& saver : savers) saver.join();
  EXPECT_GE(saved, 1);
  EXPECT_NE(newest_step(), 0U);
  EXPECT_EQ(names(), kWithOne);
}

}  // namespace
}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
#include "os/directory.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <map>
#include <string>

#include "child_process.h"
#include "os/beneath.h"
#include "os/direct_file.h"
#include "os/file.h"
#include "os/file_lock.h"

namespace meron {
namespace {

class DirectoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string path = ::testing::TempDir() + "meron-directory-XXXXXX";
    ASSERT_NE(::mkdtemp(path.data()), nullptr);
    path_ = path;
  }
  void TearDown() override {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string at(const std::string& name) const { return path_ + "/" + name; }
  void make(const std::string& name, const std::string& content = "x") const {
    ASSERT_TRUE(write_file(at(name), content).ok());
  }
  std::string content(const std::string& name) const {
    const auto text = read_file(at(name), 1000);
    return text.ok() ? *text : "none";
  }

  std::string path_;
};

TEST_F(DirectoryTest, ListsAllEntriesWithoutFollowingLinks) {
  make("file", "12345");
  make(".hidden");
  ASSERT_TRUE(*make_directory(at("folder")));
  EXPECT_FALSE(*make_directory(at("folder")));
  ASSERT_EQ(::symlink(at("folder").c_str(), at("link").c_str()), 0);
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  const auto entries = list_entries(path_);
  ASSERT_TRUE(entries.ok());
  std::map<std::string, EntryKind> found;
  for (const DirectoryEntry& entry : *entries) found[entry.name] = entry.kind;
  const std::map<std::string, EntryKind> expected = {{"file", EntryKind::file},
                                                     {".hidden", EntryKind::file},
                                                     {"folder", EntryKind::directory},
                                                     {"link", EntryKind::link},
                                                     {"pipe", EntryKind::other}};
  EXPECT_EQ(found, expected);
  for (const auto& [name, kind] : expected) EXPECT_EQ((*look_at(at(name)))->kind, kind) << name;
  EXPECT_EQ((*look_at(at("file")))->bytes, 5U);
  EXPECT_FALSE(look_at(at("none"))->has_value());
  EXPECT_FALSE(look_at(at("file/beneath"))->has_value());
  EXPECT_EQ(list_entries(at("none")).error().code(), MERON_E_NOT_FOUND);
}

TEST_F(DirectoryTest, RenamesExchangesAndSyncs) {
  make("a", "a");
  make("b", "b");
  EXPECT_TRUE(sync_directory(path_).ok());
  const auto exchanged = exchange_paths(at("a"), at("b"));
  ASSERT_TRUE(exchanged.ok());
  if (*exchanged) {
    EXPECT_EQ(content("a") + content("b"), "ba");
  }
  EXPECT_TRUE(rename_path(at("a"), at("c")).ok());
  EXPECT_FALSE(look_at(at("a"))->has_value());
  const Status missing = rename_path(at("a"), at("c"));
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code(), MERON_E_NOT_FOUND);
  EXPECT_EQ(missing.error().info().subject, at("a"));
  EXPECT_EQ(exchange_paths(at("a"), at("c")).error().code(), MERON_E_NOT_FOUND);
  EXPECT_EQ(sync_directory(at("none")).error().code(), MERON_E_NOT_FOUND);
}

TEST_F(DirectoryTest, WithoutTheCallPathsAreNotExchanged) {
  make("a", "a");
  make("b", "b");
  for (const int error : {ENOSYS, EPERM, EINVAL}) {
    EXPECT_EQ(test::run_in_child([&] {
                CHILD_EXPECT(test::deny_syscall(SYS_renameat2, error));
                const auto exchanged = exchange_paths(at("a"), at("b"));
                CHILD_EXPECT(exchanged.ok() && !*exchanged);
                return 0;
              }),
              0);
  }
  EXPECT_EQ(content("a"), "a");
}

TEST_F(DirectoryTest, RemovesATreeButNotWhereLinksLead) {
  ASSERT_TRUE(*make_directory(at("kept")));
  make("kept/file");
  ASSERT_TRUE(*make_directory(at("tree")));
  ASSERT_TRUE(*make_directory(at("tree/deeper")));
  make("tree/.hidden");
  make("tree/deeper/file");
  ASSERT_EQ(::symlink(at("kept").c_str(), at("tree/link").c_str()), 0);
  int removals = 0;
  EXPECT_TRUE(remove_tree(at("tree"), [&] { ++removals; }).ok());
  EXPECT_EQ(removals, 5);
  EXPECT_FALSE(look_at(at("tree"))->has_value());
  EXPECT_EQ(content("kept/file"), "x");
  EXPECT_TRUE(remove_tree(at("tree")).ok()) << "what is not there is removed already";
  ASSERT_EQ(::symlink(at("kept").c_str(), at("link").c_str()), 0);
  EXPECT_FALSE(remove_tree(at("link")).ok());
  EXPECT_EQ(content("kept/file"), "x");
}

TEST_F(DirectoryTest, ATreeThatIsTooDeepIsNotRemovedForEver) {
  std::string deep = at("deep");
  for (int i = 0; i <= kMaxTreeDepth; ++i, deep += "/d") ASSERT_TRUE(*make_directory(deep));
  const Status status = remove_tree(at("deep"));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), MERON_E_IO);
}

TEST_F(DirectoryTest, FilesBeneathAreOpenedWithoutFollowingLinks) {
  make("file", "12345");
  ASSERT_TRUE(*make_directory(at("folder")));
  ASSERT_EQ(::symlink(at("file").c_str(), at("link").c_str()), 0);
  ASSERT_EQ(::symlink(path_.c_str(), at("itself").c_str()), 0);
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  const auto check = [&]() -> int {
    const auto file = open_beneath(path_, "file");
    CHILD_EXPECT(file.ok() && file->bytes == 5);
    CHILD_EXPECT(open_beneath(at("itself"), "file").ok());
    CHILD_EXPECT(*read_beneath(path_, "file", 5) == "12345");
    CHILD_EXPECT(read_beneath(path_, "file", 4).error().code() == MERON_E_IO);
    CHILD_EXPECT(open_beneath(path_, "none").error().code() == MERON_E_NOT_FOUND);
    CHILD_EXPECT(open_beneath(path_, "link").error().code() == MERON_E_AUTH);
    CHILD_EXPECT(open_beneath(path_, "link").error().info().subject == at("link"));
    for (const std::string name : {"", ".", "..", "folder/x", "/etc/passwd", "itself/file"}) {
      CHILD_EXPECT(open_beneath(path_, name).error().code() == MERON_E_AUTH);
    }
    CHILD_EXPECT(open_beneath(path_, std::string("file\0x", 6)).error().code() == MERON_E_AUTH);
    CHILD_EXPECT(open_beneath(path_, "folder").error().code() == MERON_E_IO);
    CHILD_EXPECT(open_beneath(path_, "pipe").error().code() == MERON_E_IO);
    return 0;
  };
  EXPECT_EQ(check(), 0);
#ifdef SYS_openat2
  for (const int error : {ENOSYS, EPERM}) {
    EXPECT_EQ(test::run_in_child([&] {
                CHILD_EXPECT(test::deny_syscall(SYS_openat2, error));
                return check();
              }),
              0);
  }
#endif
}

TEST_F(DirectoryTest, ANewFileTakesNoNameThatIsTaken) {
  const auto fd = create_file(at("new"));
  ASSERT_TRUE(fd.ok());
  EXPECT_TRUE(sync_file(fd->get(), at("new")).ok());
  EXPECT_FALSE(create_file(at("new")).ok());
  ASSERT_EQ(::symlink(at("nowhere").c_str(), at("link").c_str()), 0);
  EXPECT_FALSE(create_file(at("link")).ok());
  EXPECT_FALSE(look_at(at("nowhere"))->has_value());
  const Status failed = sync_file(-1, at("new"));
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().info().subject, at("new"));
}

TEST_F(DirectoryTest, AnOpenFileIsAdoptedForDirectTransfers) {
  auto fd = create_file(at("new"));
  ASSERT_TRUE(fd.ok());
  const auto file = DirectFile::adopt(std::move(fd).value(), at("new"), FileUse::write);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->path(), at("new"));
  EXPECT_TRUE(file->reserve(0, 100'001).ok());
  EXPECT_EQ(*file->size(), 100'001U);
  const std::string content(50'000, 'x');
  EXPECT_EQ(write_at(file->buffered_fd(), reinterpret_cast<const std::byte*>(content.data()),
                     content.size(), 50'001),
            50'000);
}

// Written in part, it would say "Success"; beyond the limit, a signal would end the process.
TEST_F(DirectoryTest, ALockThatCannotBeWrittenSaysWhy) {
  EXPECT_EQ(test::run_in_child([&] {
              auto lock = FileLock::attempt(at("lock"), true);
              CHILD_EXPECT(lock.ok());
              const rlimit limit{4, 4};
              CHILD_EXPECT(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
              const Status written = lock->write("process 7 on host");
              CHILD_EXPECT(!written.ok() && written.error().code() == MERON_E_NO_SPACE);
              CHILD_EXPECT(written.error().info().advice.find("ulimit -f") != std::string::npos);
              CHILD_EXPECT(lock->write("7").ok());
              return 0;
            }),
            0);
}

TEST_F(DirectoryTest, ALockIsHeldByOneUntilItIsReleasedOrItsProcessEnds) {
  EXPECT_EQ(FileLock::attempt(at("lock"), false).error().code(), MERON_E_NOT_FOUND);
  auto lock = FileLock::attempt(at("lock"), true);
  ASSERT_TRUE(lock.ok());
  ASSERT_EQ(lock->state(), FileLock::State::held);
  EXPECT_TRUE(lock->write("me, and a long story").ok());
  EXPECT_TRUE(lock->write("me").ok());
  EXPECT_EQ(content("lock"), "me");
  EXPECT_EQ(FileLock::attempt(at("lock"), true)->state(), FileLock::State::busy);
  EXPECT_EQ(test::run_in_child([&] {
              CHILD_EXPECT(FileLock::attempt(at("lock"), false)->state() == FileLock::State::busy);
              lock->release();  // of a fork: nothing happens
              CHILD_EXPECT(FileLock::attempt(at("lock"), false)->state() == FileLock::State::busy);
              return 0;
            }),
            0);
  {
    // A child that was forked meanwhile does not keep what its parent releases.
    const test::Child child([] { return ::pause(); });
    lock->release();
    EXPECT_EQ(FileLock::attempt(at("lock"), false)->state(), FileLock::State::held);
  }
  EXPECT_EQ(test::run_in_child([&] {
              auto taken = FileLock::attempt(at("lock"), false);
              CHILD_EXPECT(taken->state() == FileLock::State::held);
              ::kill(::getpid(), SIGKILL);
              return 0;
            }),
            1000 + SIGKILL);
  EXPECT_EQ(FileLock::attempt(at("lock"), false)->state(), FileLock::State::held);
}

TEST_F(DirectoryTest, WithoutLocksNoneIsHeld) {
  EXPECT_EQ(test::run_in_child([&] {
              CHILD_EXPECT(test::deny_syscall(SYS_flock, ENOLCK));
              const auto lock = FileLock::attempt(at("lock"), true);
              CHILD_EXPECT(lock.ok() && lock->state() == FileLock::State::unsupported);
              return 0;
            }),
            0);
}

}  // namespace
}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
// Saves that fail while training goes on: every rank learns of it, once, and loses nothing.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/distributed/async_saves.h"

namespace meron::test {
namespace {

namespace fs = std::filesystem;

// Rank 1 can write no file longer than this.
void limit_files(uint64_t bytes) {
  signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  limit.rlim_cur = bytes;
  setrlimit(RLIMIT_FSIZE, &limit);
}

TEST(AsyncSave, ThatFailsOnOneRankFailsOnAllAndTrainingContinues) {
  const Folder folder;
  EXPECT_TRUE(run_world({"shm", 2, "zero3"}, [&](int rank, meron_context context) {
    Trainer trainer(context, MERON_F32);
    if (rank == 1) limit_files(16);
    const meron_future save = begin_save(trainer, folder.path, "one", 1);
    train(trainer, rank, 2, 0, 1);
    meron_status status = MERON_OK;
    const std::string text = failure_of(save, &status);
    require(status < 0, "the save fails");
    require(rank == 1 || text.find("rank 1") != std::string::npos, "the rank is named");
    train(trainer, rank, 2, 1, 1);
    if (rank == 1) limit_files(RLIM_INFINITY);
    finish(begin_save(trainer, folder.path, "two", 2));
  }));
  EXPECT_FALSE(fs::exists(folder.path + "/one"));
  EXPECT_TRUE(fs::exists(folder.path + "/two/meron.json"));
}

TEST(AsyncSave, AFailureThatARankHasNotWaitedForIsRaisedByTheNext) {
  const Folder folder;
  EXPECT_TRUE(run_world({"shm", 3, "zero3"}, [&](int rank, meron_context context) {
    const Trainer trainer(context, MERON_F32);
    if (rank == 1) limit_files(16);
    const meron_future save = begin_save(trainer, folder.path, "one", 1);
    meron_status status = MERON_OK;
    if (rank == 0) (void)failure_of(save, &status);
    const meron_checkpoint_save_options options = save_options(trainer, 2);
    meron_future next{};
    meron_error* error = nullptr;
    status =
        meron_checkpoint_save_begin(&next, context, folder.path.c_str(), "two", &options, &error);
    require(status < 0, "the next save tells");
    meron_error_free(error);
    if (rank == 1) limit_files(RLIM_INFINITY);
    finish(begin_save(trainer, folder.path, "three", 3));
  }));
  EXPECT_FALSE(fs::exists(folder.path + "/two"));
  EXPECT_TRUE(fs::exists(folder.path + "/three/meron.json"));
}

// As bindings release futures that were dropped: the failure has not been reported then.
TEST(AsyncSave, AFailureThatWasOnlyPolledForIsRaisedByTheNext) {
  const Folder folder;
  EXPECT_TRUE(run_world({"shm", 2, "zero3"}, [&](int, meron_context context) {
    const Trainer trainer(context, MERON_F32);
    limit_files(16);
    const meron_future save = begin_save(trainer, folder.path, "one", 1);
    meron_status status = MERON_IN_PROGRESS;
    while (status == MERON_IN_PROGRESS) status = meron_future_poll(save, nullptr);
    require(status < 0, "the save fails");
    CALL(meron_future_release, save);
    limit_files(RLIM_INFINITY);
    const meron_checkpoint_save_options options = save_options(trainer, 2);
    meron_future next{};
    status =
        meron_checkpoint_save_begin(&next, context, folder.path.c_str(), "two", &options, nullptr);
    require(status < 0, "the next save tells");
    finish(begin_save(trainer, folder.path, "three", 3));
  }));
  EXPECT_FALSE(fs::exists(folder.path + "/two"));
}

// Text of the log, in the process of a rank.
std::string& told() {
  static std::string text;
  return text;
}

// Path of a rank's log, which the test reads after the rank has closed its context.
std::string& log_file() {
  static std::string path;
  return path;
}

TEST(AsyncSave, AnUnreportedFailureIsLoggedWhenTheContextIsClosed) {
  for (const bool waits : {false, true}) {
    const Folder folder, logs;
    log_file() = logs.path + "/log";
    World world{"shm", 2, "zero3"};
    world.log = [](void*, meron_log_level, const char* message, size_t) {
      limit_files(RLIM_INFINITY);
      std::ofstream(log_file(), std::ios::app) << message << "\n";
    };
    EXPECT_TRUE(run_world(world, [&](int, meron_context context) {
      const Trainer trainer(context, MERON_F32);
      limit_files(16);
      const meron_future save = begin_save(trainer, folder.path, "one", 1);
      meron_status status = MERON_OK;
      if (waits) (void)failure_of(save, &status);
    }));
    std::ifstream file(log_file());
    const std::string text((std::istreambuf_iterator<char>(file)),
                           std::istreambuf_iterator<char>());
    EXPECT_EQ(text.find("its last save has failed") != std::string::npos, !waits) << text;
  }
}

TEST(AsyncSave, ThatCannotRemoveOlderOnesSucceedsAndLogsIt) {
  const Folder folder;
  World world{"shm", 2, "zero3"};
  world.log = [](void*, meron_log_level, const char* message, size_t) {
    told().append(message).append("\n");
  };
  EXPECT_TRUE(run_world(world, [&](int rank, meron_context context) {
    Trainer trainer(context, MERON_F32);
    finish(begin_save(trainer, folder.path, "old", 1));
    // No tree so deep is removed.
    std::string deep = folder.path + "/old";
    for (int level = 0; level < 20; ++level) deep += "/d";
    if (rank == 0) fs::create_directories(deep);
    train(trainer, rank, 2, 0, 1);
    meron_checkpoint_save_options options = save_options(trainer, 2);
    options.keep = 1;
    meron_future save{};
    CALL(meron_checkpoint_save_begin, &save, context, folder.path.c_str(), "new", &options);
    finish(save);
    train(trainer, rank, 2, 1, 1);  // a call of this rank logs the messages of the engine's threads
    const bool logged = told().find("older checkpoints stay") != std::string::npos &&
                        told().find("save of 'new'") != std::string::npos &&
                        told().find("levels deep") != std::string::npos;
    require(logged == (rank == 0), told().c_str());
    require(load(trainer, folder.path) == 2, "the new one is there");
  }));
  EXPECT_TRUE(fs::exists(folder.path + "/new/meron.json"));
}

}  // namespace
}  // namespace meron::test

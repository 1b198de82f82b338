// SPDX-License-Identifier: Apache-2.0
// Saves that a trainer cancels: all ranks agree how they end, and earlier checkpoints stay.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "tests/distributed/async_saves.h"

namespace meron::test {
namespace {

namespace fs = std::filesystem;

// Names in the folder besides `latest`.
std::string names_in(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name != "latest") names.insert(name);
  }
  std::string text;
  for (const std::string& name : names) text += name + " ";
  return text;
}

// The end of a save on this rank.
struct Ended {
  meron_status status = MERON_OK;
  int peer = MERON_RANK_NONE;
  std::string text;
};
Ended wait_for(meron_future save) {
  Ended ended;
  meron_error* error = nullptr;
  ended.status = meron_future_finish(save, MERON_TIMEOUT_DEFAULT, &error);
  ended.peer = meron_error_peer(error);
  ended.text = words_of(error);
  return ended;
}

// True on all ranks if `own` is the same on all.
bool same_on_all(meron_context context, int ranks, float own) {
  meron_group world{};
  CALL(meron_context_world, &world, context);
  float sums[] = {own, own * own};
  meron_future all{};
  CALL(meron_all_reduce_begin, &all, world, sums, 2, MERON_F32, MERON_REDUCE_OP_SUM);
  finish(all);
  const auto n = static_cast<float>(ranks);
  return sums[0] == n * own && sums[1] == n * own * own;
}

TEST(CancelledSave, OfOneRankEndsOnAllAndLeavesNothing) {
  for (const char* transport : {"shm", "local"}) {
    SCOPED_TRACE(transport);
    const Folder folder;
    EXPECT_TRUE(run_world({transport, 3, "zero3"}, [&](int rank, meron_context context) {
      Trainer trainer(context, MERON_F32);
      finish(begin_save(trainer, folder.path, "one", 1));
      if (rank != 1) usleep(50'000);  // rank 1 cancels before the others begin
      const meron_future save = begin_save(trainer, folder.path, "two", 2);
      if (rank == 1) CALL(meron_checkpoint_cancel_save, context);
      train(trainer, rank, 3, 0, 1);
      const Ended ended = wait_for(save);
      require(ended.status == MERON_E_CANCELLED, "it is cancelled");
      require(ended.peer == 1, "the rank is named");
      require(ended.text.find("rank 1 cancelled the save") != std::string::npos, "in words");
      meron_checkpoint_progress progress = MERON_CHECKPOINT_PROGRESS_INIT;
      CALL(meron_checkpoint_get_progress, &progress, context);
      require(progress.saving == 0, "no save is pending");
      barrier(context);
      require(names_in(folder.path) == "one ", "nothing is left");
      barrier(context);
      train(trainer, rank, 3, 1, 1);
      finish(begin_save(trainer, folder.path, "three", 3));
      require(load(trainer, folder.path) == 3, "the next save is there");
    }));
    EXPECT_EQ("one three ", names_in(folder.path));
  }
}

TEST(CancelledSave, LeavesTheOneThatItWouldReplaceAndThoseThatItWouldRemove) {
  const size_t all = kStates * weight_count();
  const Folder folder;
  Shared<float> saved(all), loaded(all);
  ASSERT_TRUE(run_world({"shm", 2, "zero3"}, [&](int rank, meron_context context) {
    Trainer trainer(context, MERON_F32);
    finish(begin_save(trainer, folder.path, "old", 1));
    train(trainer, rank, 2, 0, 1);
    finish(begin_save(trainer, folder.path, "last", 2));
    dump(trainer, saved.data());
    train(trainer, rank, 2, 1, 1);
    if (rank == 1) usleep(30'000);
    meron_checkpoint_save_options options = save_options(trainer, 3);
    options.overwrite = 1;
    options.keep = 1;
    meron_future save{};
    CALL(meron_checkpoint_save_begin, &save, context, folder.path.c_str(), "last", &options);
    CALL(meron_checkpoint_cancel_save, context);
    CALL(meron_checkpoint_cancel_save, context);  // twice
    require(wait_for(save).status == MERON_E_CANCELLED, "it is cancelled");
    CALL(meron_checkpoint_cancel_save, context);  // none is pending
    require(load(trainer, folder.path) == 2, "the one before is the newest");
    dump(trainer, loaded.data());
  }));
  EXPECT_EQ("last old ", names_in(folder.path));
  EXPECT_EQ(0, std::memcmp(saved.data(), loaded.data(), all * sizeof(float)));
}

// At any time, on any rank: all ranks see the save fail as cancelled, or all see it succeed.
TEST(CancelledSave, AtAnyTimeEndsAlikeOnAllRanks) {
  const Folder folder;
  EXPECT_TRUE(run_world({"shm", 2, "zero3"}, [&](int rank, meron_context context) {
    Trainer trainer(context, MERON_F32);
    int cancelled = 0, succeeded = 0;
    for (int round = 0; round < 60; ++round) {
      const std::string name = "save-" + std::to_string(round);
      const meron_future save =
          begin_save(trainer, folder.path, name.c_str(), static_cast<uint64_t>(round));
      if (rank == round % 2 || round % 5 == 0) {
        usleep(50u << (round % 12));
        CALL(meron_checkpoint_cancel_save, context);
      }
      const meron_status status = wait_for(save).status;
      require(status == MERON_OK || status == MERON_E_CANCELLED, "it ends one way or the other");
      require(same_on_all(context, 2, status == MERON_OK ? 1.0f : 2.0f), "alike on all ranks");
      const bool there = fs::exists(folder.path + "/" + name + "/meron.json");
      require(there == (status == MERON_OK), "it is there if it succeeded");
      ++(status == MERON_OK ? succeeded : cancelled);
      barrier(context);
    }
    if (rank == 0) std::printf("%d cancelled, %d succeeded\n", cancelled, succeeded);
    for (const auto& entry : fs::directory_iterator(folder.path)) {
      const std::string name = entry.path().filename().string();
      require(name.find(".saving-") != 0, "no temporary directory is left");
    }
  }));
}

TEST(CancelledSave, OfFoldersPerNodeLeavesNothingOnAnyNode) {
  const Folder folder;
  World world{"cluster", 4, "mics"};
  world.node = 2;
  EXPECT_TRUE(run_world(world, [&](int rank, meron_context context) {
    Trainer trainer(context, MERON_F32);
    const std::string own = folder.path + "/node" + std::to_string(rank / 2);
    meron_checkpoint_save_options options = save_options(trainer, 1);
    options.per_node = 1;
    if (rank != 3) usleep(50'000);
    meron_future save{};
    CALL(meron_checkpoint_save_begin, &save, context, own.c_str(), "one", &options);
    if (rank == 3) CALL(meron_checkpoint_cancel_save, context);
    require(wait_for(save).status == MERON_E_CANCELLED, "it is cancelled");
    barrier(context);
    require(names_in(own).empty(), "nothing is left");
  }));
}

// Path of a rank's log, which the test reads after the rank has closed its context.
std::string& log_file() {
  static std::string path;
  return path;
}

TEST(CancelledSave, ThatNobodyWaitsForIsNoFailureAtTheClose) {
  const Folder folder, logs;
  log_file() = logs.path + "/log";
  World world{"shm", 2, "zero3"};
  world.log = [](void*, meron_log_level, const char* message, size_t) {
    std::ofstream(log_file(), std::ios::app) << message << "\n";
  };
  EXPECT_TRUE(run_world(world, [&](int rank, meron_context context) {
    const Trainer trainer(context, MERON_F32);
    if (rank == 1) usleep(30'000);
    (void)begin_save(trainer, folder.path, "one", 1);
    CALL(meron_checkpoint_cancel_save, context);
  }));
  std::ifstream file(log_file());
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_EQ("", text);
  EXPECT_EQ("", names_in(folder.path));
}

// ---- Some units
// ----------------------------------------------------------------------------------

TEST(SavesOfSomeUnits, ThatDifferBetweenRanksAreAMismatch) {
  const Folder folder;
  EXPECT_TRUE(run_world({"local", 2, "zero3"}, [&](int rank, meron_context context) {
    const OneParam a(context, 10, false, "a", "u"), b(context, 10, false, "b", "v");
    meron_checkpoint_save_options options = MERON_CHECKPOINT_SAVE_OPTIONS_INIT;
    options.units = rank == 0 ? &a.unit : &b.unit;
    options.unit_count = 1;
    meron_error* error = nullptr;
    meron_future save{};
    meron_status status =
        meron_checkpoint_save_begin(&save, context, folder.path.c_str(), "one", &options, &error);
    if (status == MERON_OK) status = meron_future_finish(save, MERON_TIMEOUT_DEFAULT, &error);
    require(status == MERON_E_MISMATCH, "the ranks name different units");
    meron_error_free(error);
  }));
  EXPECT_FALSE(fs::exists(folder.path + "/one"));
}

}  // namespace
}  // namespace meron::test

// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>

#include "topology/identity.h"
#include "topology/members.h"

namespace meron {
namespace {

constexpr std::array kVariables = {"MERON_RANK",
                                   "MERON_WORLD_SIZE",
                                   "MERON_LOCAL_RANK",
                                   "MERON_LOCAL_WORLD_SIZE",
                                   "RANK",
                                   "WORLD_SIZE",
                                   "LOCAL_RANK",
                                   "LOCAL_WORLD_SIZE",
                                   "OMPI_COMM_WORLD_RANK",
                                   "OMPI_COMM_WORLD_SIZE",
                                   "SLURM_PROCID",
                                   "SLURM_NTASKS",
                                   "PMI_RANK",
                                   "PMI_SIZE"};

class IdentityTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* variable : kVariables) unsetenv(variable);
  }
  void TearDown() override { SetUp(); }
  static void set(const char* name, const char* value) { setenv(name, value, 1); }
};

TEST_F(IdentityTest, WithoutALauncherIsTheOnlyRank) {
  const auto identity = find_identity(-1, -1);
  ASSERT_TRUE(identity.ok());
  EXPECT_EQ(0, identity->rank);
  EXPECT_EQ(1, identity->world_size);
  EXPECT_EQ("alone", identity->source);
}

TEST_F(IdentityTest, ArgumentsComeBeforeTheEnvironment) {
  set("MERON_RANK", "1");
  set("MERON_WORLD_SIZE", "2");
  const auto identity = find_identity(3, 5);
  ASSERT_TRUE(identity.ok());
  EXPECT_EQ(3, identity->rank);
  EXPECT_EQ(5, identity->world_size);
}

TEST_F(IdentityTest, NamesTheJob) {
  constexpr std::array kJobs = {"MERON_JOB",           "SLURM_JOB_ID",        "SLURM_STEP_ID",
                                "SLURM_RESTART_COUNT", "TORCHELASTIC_RUN_ID", "PBS_JOBID"};
  for (const char* variable : kJobs) unsetenv(variable);
  EXPECT_EQ("default", *find_job(""));
  set("PBS_JOBID", "12[3].server");
  EXPECT_EQ("12_3_.server", *find_job(""));
  set("TORCHELASTIC_RUN_ID", "run");
  EXPECT_EQ("run", *find_job(""));
  set("SLURM_JOB_ID", "7");
  EXPECT_EQ("7", *find_job(""));
  set("SLURM_STEP_ID", "0");
  set("SLURM_RESTART_COUNT", "2");
  EXPECT_EQ("7-0-2", *find_job(""));
  set("MERON_JOB", "../mine");
  EXPECT_EQ(".._mine", *find_job(""));
  EXPECT_EQ("given", *find_job("given"));
  EXPECT_FALSE(find_job(std::string(129, 'x')).ok());
  for (const char* variable : kJobs) unsetenv(variable);
}

TEST_F(IdentityTest, ReadsEachLauncher) {
  const std::array<std::array<const char*, 3>, 5> launchers = {
      {{"MERON_RANK", "MERON_WORLD_SIZE", "meron run"},
       {"RANK", "WORLD_SIZE", "torchrun"},
       {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "Open MPI"},
       {"SLURM_PROCID", "SLURM_NTASKS", "Slurm"},
       {"PMI_RANK", "PMI_SIZE", "MPICH"}}};
  for (const auto& [rank, size, name] : launchers) {
    SetUp();
    set(rank, "2");
    set(size, "4");
    const auto identity = find_identity(-1, -1);
    ASSERT_TRUE(identity.ok()) << name;
    EXPECT_EQ(2, identity->rank) << name;
    EXPECT_EQ(4, identity->world_size) << name;
    EXPECT_EQ(name, identity->source);
  }
}

TEST_F(IdentityTest, RefusesHalvesWordsAndRanksBeyondTheWorld) {
  EXPECT_EQ(MERON_E_ARGUMENT, find_identity(0, -1).error().code());
  EXPECT_EQ(MERON_E_ARGUMENT, find_identity(-1, 2).error().code());
  EXPECT_EQ(MERON_E_ARGUMENT, find_identity(2, 2).error().code());
  EXPECT_EQ(MERON_E_ARGUMENT, find_identity(0, 0).error().code());
  EXPECT_EQ(MERON_E_ARGUMENT, find_identity(0, kMaxWorldSize + 1).error().code());
  set("RANK", "0");
  const auto half = find_identity(-1, -1);
  EXPECT_EQ(MERON_E_ARGUMENT, half.error().code());
  EXPECT_NE(std::string::npos, half.error().info().what.find("WORLD_SIZE"));
  set("WORLD_SIZE", "two");
  const auto word = find_identity(-1, -1);
  EXPECT_EQ(MERON_E_ARGUMENT, word.error().code());
  EXPECT_NE(std::string::npos, word.error().info().what.find("WORLD_SIZE='two'"));
  set("WORLD_SIZE", "");
  EXPECT_EQ(MERON_E_ARGUMENT, find_identity(-1, -1).error().code());
}

TEST(MembersTest, KeepsTheOrderAndFindsItself) {
  const std::array ranks = {3, 0, 2};
  const auto members = Members::of(ranks, 4, 2);
  ASSERT_TRUE(members.ok());
  EXPECT_EQ(3, members->size());
  EXPECT_EQ(2, members->index());
  EXPECT_EQ(3, members->world_rank(0));
  EXPECT_EQ(MERON_RANK_NONE, Members::of(ranks, 4, 1)->index());
}

TEST(MembersTest, RefusesStrangersAndRepetitions) {
  EXPECT_EQ(MERON_E_ARGUMENT, Members::of({}, 2, 0).error().code());
  EXPECT_EQ(MERON_E_ARGUMENT, Members::of(std::array{0, 2}, 2, 0).error().code());
  EXPECT_EQ(MERON_E_ARGUMENT, Members::of(std::array{-1}, 2, 0).error().code());
  EXPECT_EQ(MERON_E_ARGUMENT, Members::of(std::array{1, 1}, 2, 0).error().code());
}

}  // namespace
}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
#include "os/job_board.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <string>

#include "tests/unit/os/child_process.h"

namespace meron {
namespace {

TEST(JobBoard, KeepsWhoEndedAndWhomTheyBlame) {
  const auto board = JobBoard::create(3);
  ASSERT_TRUE(board.ok());
  EXPECT_FALSE((*board)->ended(1));
  EXPECT_FALSE((*board)->blamed(1));
  (*board)->set_ended(1, 0);
  (*board)->set_ended(2, W_EXITCODE(3, 0));
  EXPECT_EQ((*board)->ended(1), 0);
  EXPECT_EQ(end_text(*(*board)->ended(2)), "exited with code 3");
  (*board)->set_blamed(1, 0);
  (*board)->set_blamed(1, 2);  // what came of it
  EXPECT_EQ((*board)->blamed(1), 0);
  (*board)->clear_blame(1);
  EXPECT_FALSE((*board)->blamed(1));
  for (const int rank : {-1, 3}) {  // of no slot
    (*board)->set_ended(rank, 0);
    (*board)->set_blamed(rank, 0);
    (*board)->set_blamed(0, rank);
    EXPECT_FALSE((*board)->ended(rank));
    EXPECT_FALSE((*board)->blamed(0));
  }
}

TEST(JobBoard, TellsTheFirstOfThoseThatEnded) {
  const auto board = JobBoard::create(4);
  ASSERT_TRUE(board.ok());
  (*board)->set_blamed(0, 1);
  (*board)->set_blamed(1, 2);
  (*board)->set_ended(0, 256);
  EXPECT_EQ((*board)->first_of(0), 0);
  (*board)->set_ended(1, 256);
  (*board)->set_ended(2, 0);
  EXPECT_EQ((*board)->first_of(0), 2);
  (*board)->set_blamed(2, 0);
  EXPECT_EQ((*board)->first_of(1), 1);
}

TEST(JobBoard, IsFoundByRanks) {
  const auto board = JobBoard::create(2);
  ASSERT_TRUE(board.ok());
  setenv("MERON_BOARD_FD", std::to_string((*board)->fd()).c_str(), 1);
  for (const char* world_size : {"2", "1000", "two", ""}) {
    setenv("MERON_WORLD_SIZE", world_size, 1);
    const int found = test::run_in_child([] {
      JobBoard* const own = JobBoard::of_launcher();
      if (own != nullptr) own->set_blamed(1, 0);
      return own != nullptr ? 1 : 0;
    });
    EXPECT_EQ(found, std::string(world_size) == "2" ? 1 : 0) << world_size;
  }
  EXPECT_EQ((*board)->blamed(1), 0);
  setenv("MERON_WORLD_SIZE", "2", 1);
  for (const char* fd : {"0", "999", "-1", "x"}) {
    setenv("MERON_BOARD_FD", fd, 1);
    EXPECT_EQ(test::run_in_child([] { return JobBoard::of_launcher() != nullptr ? 1 : 0; }), 0);
  }
  unsetenv("MERON_BOARD_FD");
  unsetenv("MERON_WORLD_SIZE");
}

}  // namespace
}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
// Devices that fail: by the fault plan, where the build has it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "../os/child_process.h"
#include "disk.h"
#include "io/fault_plan.h"
#include "io/kill_point.h"
#include "io/swap_file.h"

namespace meron {
namespace {

using test::Bytes;
using test::Faults;
using test::finish;

TEST(FaultPlan, ParsesStrictly) {
  if (!have_fault_points()) {
    EXPECT_EQ(set_io_faults("read:1:EIO").error().code(), MERON_E_UNSUPPORTED);
    GTEST_SKIP() << "this build has no fault points";
  }
  for (const char* good : {"", "read:3:EIO", "write:2+:ENOSPC,read:*:short", "read:1:eintr",
                           "read:2:hang", "write:18446744073709551615:eagain", "fsync:2:EIO",
                           "rename:*:ENOSPC,open:1:EMFILE,mkdir:3+:EACCES,fsync:1:hang"}) {
    EXPECT_OK(set_io_faults(good));
  }
  for (const char* bad : {"read",
                          "read:3",
                          "read:3:",
                          "read::EIO",
                          "read:0:EIO",
                          "read:-1:EIO",
                          "read:3++:EIO",
                          "read: 3:EIO",
                          "read:3 :EIO",
                          "read:3:eio",
                          "read:3:EWHAT",
                          "sync:3:EIO",
                          "read:3:EIO,",
                          ",read:3:EIO",
                          "read:3:EIO;write:1:EIO",
                          "read:*+:EIO",
                          "read:99999999999999999999:EIO",
                          "read:3:EIO:x",
                          "Read:3:EIO",
                          "fsync:1:short",
                          "rename:0:EIO"}) {
    const Status status = set_io_faults(bad);
    ASSERT_FALSE(status.ok()) << bad;
    EXPECT_EQ(status.error().code(), MERON_E_PARSE) << bad;
  }
  EXPECT_OK(set_io_faults(""));
}

TEST(FaultPlan, CountsEachCallAlone) {
  if (!have_fault_points()) GTEST_SKIP() << "this build has no fault points";
  const Faults faults("fsync:2:EIO,rename:1+:ENOSPC,open:1:eintr");
  EXPECT_EQ(file_fault(FileCall::fsync), 0);
  EXPECT_EQ(file_fault(FileCall::rename), ENOSPC);
  EXPECT_EQ(file_fault(FileCall::fsync), EIO);
  EXPECT_EQ(file_fault(FileCall::fsync), 0);
  EXPECT_EQ(file_fault(FileCall::mkdir), 0);
  EXPECT_EQ(file_fault(FileCall::rename), ENOSPC);
  EXPECT_EQ(file_fault(FileCall::open), EINTR);
  EXPECT_EQ(file_fault(FileCall::open), 0);
  EXPECT_EQ(with_fault(true, 10, 10), 10);
}

TEST(KillPoint, EndsTheProcessAtTheNthPassingOfItsName) {
  if (!have_fault_points()) {
    EXPECT_EQ(set_kill_point("rename:1").error().code(), MERON_E_UNSUPPORTED);
    GTEST_SKIP() << "this build has no fault points";
  }
  for (const char* bad :
       {"rename", ":1", "rename:", "rename:0", "rename:x", "rename:1+", "a:1:2"}) {
    const Status status = set_kill_point(bad);
    ASSERT_FALSE(status.ok()) << bad;
    EXPECT_EQ(status.error().code(), MERON_E_PARSE) << bad;
  }
  const auto status_with = [](const char* choice) {
    return test::run_in_child([&] {
      CHILD_EXPECT(set_kill_point(choice).ok());
      kill_point("open");
      kill_point("rename");
      CHILD_EXPECT(kill_points_passed() == 2);
      kill_point("rename");
      return 0;
    });
  };
  EXPECT_EQ(status_with(""), 0);
  EXPECT_EQ(status_with("rename:2"), 1000 + SIGKILL);
  EXPECT_EQ(status_with("rename:3"), 0);
  EXPECT_EQ(status_with("*:3"), 1000 + SIGKILL);
  EXPECT_EQ(status_with("*:4"), 0);
}

class IoFaultTest : public test::OnDisk {
 protected:
  void SetUp() override {
    OnDisk::SetUp();
    if (!have_fault_points()) GTEST_SKIP() << "this build has no fault points";
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, IoFaultTest,
                         testing::Values(test::Backend::uring, test::Backend::threads),
                         test::name_of);

// For every n of a short run: the n-th request fails, its ticket says so and no other, and what
// comes after works.
TEST_P(IoFaultTest, TheNthFailureIsToldOnceWhereItHappened) {
  constexpr uint64_t kBlock = 8192, kEach = 4 * kBlock, kTickets = 4;
  for (const bool write : {true, false}) {
    for (uint64_t n = 1; n <= kTickets * kEach / kBlock + 1; ++n) {
      const auto engine = this->engine({.block = kBlock, .depth = 3});
      const auto file = this->file(engine);
      Bytes bytes(kTickets * kEach);
      EXPECT_OK(finish(engine->write(file, 0, bytes.data(), bytes.size())));
      uint64_t failed = 0;
      {
        const Faults faults((write ? "write:" : "read:") + std::to_string(n) + ":EIO");
        std::vector<std::shared_ptr<IoTicket>> tickets;
        for (uint64_t at = 0; at < bytes.size(); at += kEach) {
          tickets.push_back(write ? engine->write(file, at, bytes.data() + at, kEach)
                                  : engine->read(file, at, bytes.data() + at, kEach));
        }
        for (const auto& ticket : tickets) {
          const Status status = finish(ticket);
          if (status.ok()) continue;
          ++failed;
          EXPECT_EQ(status.error().code(), MERON_E_IO);
          EXPECT_EQ(status.error().info().subject, file->path());
          EXPECT_THAT(status.error().info().what, testing::HasSubstr("EIO"));
          EXPECT_THAT(status.error().info().what, testing::HasSubstr("at offset"));
        }
      }
      EXPECT_EQ(failed, n <= kTickets * kEach / kBlock ? 1 : 0) << n;
      EXPECT_OK(finish(engine->read(file, 0, bytes.data(), bytes.size())));
    }
  }
}

TEST_P(IoFaultTest, NoRoomIsNoSpaceAndSaysWhatToDo) {
  const auto engine = this->engine({.block = 8192});
  const auto file = this->file(engine);
  Bytes bytes(100'000);
  const Faults faults("write:2+:ENOSPC");
  const Status status = finish(engine->write(file, 0, bytes.data(), bytes.size()));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), MERON_E_NO_SPACE);
  EXPECT_THAT(status.error().info().what, testing::HasSubstr("cannot write 8192 bytes at offset"));
  EXPECT_THAT(status.error().info().what, testing::HasSubstr(" free"));
  EXPECT_THAT(status.error().info().advice, testing::HasSubstr("free some space"));
}

TEST_P(IoFaultTest, ShortAndInterruptedTransfersMoveAllBytes) {
  std::mt19937_64 random(17);
  for (const char* plan :
       {"read:*:short,write:*:short", "read:3:short,write:2:short", "read:1:eintr,write:1:eintr",
        "read:2:eagain,read:3:eagain,write:1:eagain,write:2:short",
        "read:2:eintr,read:3:short,read:5:eagain,write:4:eintr,write:5:short,write:6:short"}) {
    for (const uint64_t bytes : {1ul, 4095ul, 4096ul, 50'000ul, 65'536ul, 300'001ul}) {
      const auto engine = this->engine({.block = 32768, .depth = 4});
      const auto file = this->file(engine);
      Bytes from(bytes), to(bytes);
      from.draw(random);
      const Faults faults(plan);
      EXPECT_OK(finish(engine->write(file, 4096, from.data(), bytes)));
      EXPECT_OK(finish(engine->read(file, 4096, to.data(), bytes)));
      EXPECT_EQ(from.copy(), to.copy()) << plan << ' ' << bytes;
    }
  }
}

TEST_P(IoFaultTest, WhatNeverSucceedsIsGivenUp) {
  const auto engine = this->engine();
  const auto file = this->file(engine);
  Bytes bytes(4096);
  const Faults faults("write:*:eagain");
  const Status status = finish(engine->write(file, 0, bytes.data(), bytes.size()));
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().info().what, testing::HasSubstr("EAGAIN"));
}

TEST_P(IoFaultTest, RefusedDirectTransfersGoThroughThePageCache) {
  std::mt19937_64 random(19);
  const auto engine = this->engine({.block = 16384});
  const auto file = this->file(engine);
  if (!file->direct()) GTEST_SKIP() << file->file().why_buffered();
  Bytes from(200'000), to(200'000);
  from.draw(random);
  {
    const Faults faults("write:3:EINVAL");
    EXPECT_OK(finish(engine->write(file, 0, from.data(), from.size())));
  }
  EXPECT_FALSE(file->direct());
  EXPECT_OK(finish(engine->read(file, 0, to.data(), to.size())));
  EXPECT_EQ(from.copy(), to.copy());
}

TEST_P(IoFaultTest, SwapThatCannotBePrewrittenMayBeTriedAgain) {
  const auto engine = this->engine();
  const auto swap = SwapFile::create(engine, directory_.path());
  ASSERT_TRUE(swap.ok());
  {
    const Faults faults("write:2:ENOSPC");
    const auto extent = (*swap)->allocate(20 << 20);
    ASSERT_FALSE(extent.ok());
    EXPECT_EQ(extent.error().code(), MERON_E_NO_SPACE);
  }
  EXPECT_EQ((*swap)->size(), 0u);
  EXPECT_TRUE((*swap)->allocate(20 << 20).ok());
}

}  // namespace
}  // namespace meron

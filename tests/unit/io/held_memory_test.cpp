// SPDX-License-Identifier: Apache-2.0
// A drive that never answers holds memory of requests: callers know by MERON_E_CLOSED, whatever
// else has failed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/clock.h"
#include "disk.h"
#include "io/fault_plan.h"
#include "io/file_io.h"

namespace meron {
namespace {

using test::Bytes;
using test::Faults;
using testing::HasSubstr;

class HeldMemory : public test::OnDisk {
 protected:
  void SetUp() override {
    OnDisk::SetUp();
    if (!have_fault_points()) GTEST_SKIP() << "this build has no fault points";
  }
};
INSTANTIATE_TEST_SUITE_P(Ring, HeldMemory, testing::Values(test::Backend::uring), test::name_of);

TEST_P(HeldMemory, ATransferThatFailedInOnePieceAndHangsInAnotherIsClosed) {
  constexpr uint64_t kBlock = 8192;
  auto engine = this->engine({.block = kBlock, .depth = 4});
  const auto file = this->file(engine);
  Bytes bytes(2 * kBlock);
  EXPECT_OK(test::finish(engine->write(file, 0, bytes.data(), bytes.size())));
  const Faults faults("read:1:EIO,reap:2:EIO");
  const auto ticket = engine->read(file, 0, bytes.data(), bytes.size());
  engine.reset();
  ASSERT_TRUE(ticket->done());
  const Status status = ticket->status();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), MERON_E_CLOSED);
  EXPECT_THAT(status.error().info().what, HasSubstr("EIO"));
  EXPECT_THAT(status.error().info().advice, HasSubstr("memory"));
}

TEST_P(HeldMemory, AnEarlierErrorOfAnotherRequestDoesNotHideThatItIsClosed) {
  constexpr uint64_t kBytes = 8192;
  const std::string path = directory_.path() + "/file";
  const auto io = FileIo::open({.backend = GetParam()}, 60 * kNanosPerSecond);
  ASSERT_TRUE(io.ok());
  Bytes first(kBytes), second(kBytes);
  const auto written = (*io)->write(path, 0, first.data(), kBytes);
  ASSERT_TRUE((*io)->wait(*written, -1).ok());
  const Faults faults("read:1:EIO,reap:2:EIO");
  const auto failed = (*io)->read(path, 0, first.data(), kBytes);
  ASSERT_TRUE(failed.ok());
  while (!(*failed)->done()) std::this_thread::yield();
  const auto hangs = (*io)->read(path, 0, second.data(), kBytes);
  ASSERT_TRUE(hangs.ok());
  const Status closed = (*io)->close();
  ASSERT_FALSE(closed.ok());
  EXPECT_EQ(closed.error().code(), MERON_E_CLOSED) << test::text_of(closed);
  EXPECT_THAT(closed.error().info().what, HasSubstr("1 more request failed"));
  EXPECT_EQ((*failed)->status().error().code(), MERON_E_IO);
  EXPECT_EQ((*hangs)->status().error().code(), MERON_E_CLOSED);
}

}  // namespace
}  // namespace meron

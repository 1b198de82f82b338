// SPDX-License-Identifier: Apache-2.0
// A process without memory: the engine's threads go on, and every request ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "disk.h"
#include "io/fault_plan.h"
#include "io/file_io.h"
#include "io/io_engine.h"
#include "tests/unit/transport/failing_allocation.h"

namespace meron {
namespace {

using test::Bytes;
using test::finish;

constexpr uint64_t kBlock = 8192;

class NoMemory : public test::OnDisk {
 protected:
  // From each end of a request on, the `number`th allocation of the thread that ends it fails.
  void starve(IoEngine& engine, int64_t number) const {
    engine.on_end([this, number] {
      thread_local std::optional<FailingAllocation> failing;
      failing.emplace(number);
      ends_.fetch_add(1);
    });
  }
  void await(int ends) const {
    const Deadline deadline = Deadline::after(20 * kNanosPerSecond);
    while (ends_.load() < ends && !deadline.passed()) std::this_thread::yield();
    ASSERT_GE(ends_.load(), ends);
  }
  // An engine whose thread lacks memory from now on, and a file of one block.
  struct Starved {
    std::shared_ptr<IoEngine> engine;
    std::shared_ptr<IoFile> file;
    Bytes bytes{4 * kBlock};
  };
  Starved starved(int64_t number) const {
    ends_ = 0;
    Starved made;
    made.engine = engine({.block = kBlock, .depth = 4, .threads = 1});
    made.file = file(made.engine);
    starve(*made.engine, number);
    EXPECT_OK(finish(made.engine->write(made.file, 0, made.bytes.data(), kBlock)));
    await(1);
    return made;
  }
  mutable std::atomic<int> ends_{0};
};
INSTANTIATE_TEST_SUITE_P(Backends, NoMemory,
                         testing::Values(test::Backend::uring, test::Backend::threads),
                         test::name_of);

TEST_P(NoMemory, RequestsNeedNone) {
  const auto engine = this->engine({.block = kBlock, .depth = 4, .threads = 1});
  const auto file = this->file(engine);
  Bytes from(1 << 20), to(1 << 20);
  std::mt19937_64 random(3);
  from.draw(random);
  EXPECT_OK(finish(engine->write(file, 0, from.data(), kBlock)));
  starve(*engine, 0);
  for (int round = 0; round < 20; ++round) {
    std::vector<std::shared_ptr<IoTicket>> tickets;
    for (uint64_t at = 0; at < from.size(); at += 7 * kBlock) {
      const uint64_t bytes = std::min(7 * kBlock, from.size() - at);
      tickets.push_back(engine->write(file, at, from.data() + at, bytes));
    }
    for (const auto& ticket : tickets) EXPECT_OK(finish(ticket));
    EXPECT_OK(finish(engine->read(file, 0, to.data(), to.size())));
    ASSERT_EQ(std::memcmp(from.data(), to.data(), from.size()), 0);
  }
  engine->on_end(nullptr);
}

// The error of a request cannot be said. That it failed must be.
TEST_P(NoMemory, ARequestThatFailsIsToldByItsCode) {
  for (int64_t number = 0; number < 12; ++number) {
    SCOPED_TRACE(number);
    auto [engine, file, bytes] = starved(number);
    const Status status = finish(engine->read(file, 0, bytes.data(), bytes.size()));
    ASSERT_FALSE(status.ok());
    if (number < 2) {
      EXPECT_EQ(status.error().code(), MERON_E_NO_MEMORY);
      EXPECT_THAT(status.error().info().what, testing::HasSubstr("no memory left"));
    } else {
      EXPECT_THAT(status.error().code(), testing::AnyOf(MERON_E_NO_MEMORY, MERON_E_IO));
    }
    EXPECT_OK(finish(engine->read(file, 0, bytes.data(), kBlock)));
    EXPECT_EQ(engine->counters().bytes_read, kBlock);
    engine->on_end(nullptr);
  }
}

TEST_P(NoMemory, BuffersAndFilesAreUsedUnregistered) {
  for (int64_t number = 0; number < 8; ++number) {
    SCOPED_TRACE(number);
    auto [engine, file, bytes] = starved(number);
    (void)engine->register_buffer(bytes.data(), bytes.size());
    EXPECT_OK(finish(engine->write(file, 0, bytes.data(), bytes.size())));
    EXPECT_OK(finish(engine->write(this->file(engine), 0, bytes.data(), bytes.size())));
    engine->unregister_buffer(bytes.data());
    EXPECT_OK(finish(engine->read(file, 0, bytes.data(), bytes.size())));
    engine->on_end(nullptr);
  }
}

// If a begin returns an error, no transfer may use the caller's memory.
TEST_P(NoMemory, ABeginThatFailsHasBegunNothing) {
  const std::string path = directory_.path() + "/file";
  const auto io = FileIo::open({.threads = 1, .backend = GetParam()}, 60 * kNanosPerSecond);
  ASSERT_TRUE(io.ok());
  Bytes bytes(kBlock);
  uint64_t begun = 0;
  for_each_allocation([&](int64_t number) {
    SCOPED_TRACE(number);
    std::shared_ptr<IoRequest> request;
    try {
      const FailingAllocation failing(number);
      auto made = (*io)->write(path, 0, bytes.data(), bytes.size());
      if (made.ok()) request = *std::move(made);
    } catch (const std::bad_alloc&) {
    }
    if (request) ++begun;
    EXPECT_TRUE((*io)->wait_all(-1).ok());
    const auto info = (*io)->info();
    ASSERT_TRUE(info.ok());
    EXPECT_EQ(info->requests, begun);
    EXPECT_EQ(info->pending, 0);
    EXPECT_EQ(info->counters.bytes_written, begun * kBlock);
  });
  EXPECT_GE(begun, 1);
  EXPECT_OK((*io)->close());
}

// A drive that never answers, and nothing left to say so with: the code tells whose memory is held.
class HeldWithoutMemory : public NoMemory {};
INSTANTIATE_TEST_SUITE_P(Ring, HeldWithoutMemory, testing::Values(test::Backend::uring),
                         test::name_of);

TEST_P(HeldWithoutMemory, IsClosed) {
  if (!have_fault_points()) GTEST_SKIP() << "this build has no fault points";
  auto [engine, file, bytes] = starved(0);
  const test::Faults faults("reap:1:EIO");
  std::vector<std::shared_ptr<IoTicket>> tickets;
  for (int i = 0; i < 3; ++i) {
    tickets.push_back(engine->read(file, 0, bytes.data(), kBlock));
  }
  engine->on_end(nullptr);
  engine.reset();
  for (const auto& ticket : tickets) ASSERT_TRUE(ticket->done());
  const Status held = tickets[0]->status();
  ASSERT_FALSE(held.ok());
  EXPECT_EQ(held.error().code(), MERON_E_CLOSED);
  EXPECT_THAT(held.error().info().what, testing::HasSubstr("no memory left"));
}

}  // namespace
}  // namespace meron

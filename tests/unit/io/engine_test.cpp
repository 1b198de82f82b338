// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "base/clock.h"
#include "disk.h"
#include "io/io_engine.h"

namespace meron {
namespace {

using test::Bytes;
using test::finish;

class IoEngineTest : public test::OnDisk {};
INSTANTIATE_TEST_SUITE_P(Backends, IoEngineTest,
                         testing::Values(test::Backend::uring, test::Backend::threads),
                         test::name_of);

int threads_of_this_process() {
  int count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/task"))
    ++count;
  return count;
}

int open_descriptors() {
  int count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    ++count;
  return count;
}

// Sizes, offsets and addresses of every alignment against a model in memory.
TEST_P(IoEngineTest, ReadsWhatItWroteWhereverItLies) {
  std::mt19937_64 random(7);
  constexpr uint64_t kSize = 3 << 20;
  for (const bool registered : {false, true}) {
    for (const auto& options : {IoOptions{}, IoOptions{.block = 4096, .depth = 3, .threads = 3},
                                IoOptions{.block = 65536,
                                .depth = 8,
                                .threads = 2,
                                .single_submit = true,
                                .overlap_events = false}}) {
      const auto engine = this->engine(options);
      const auto file = this->file(engine);
      Bytes model(kSize), memory(kSize + 8192), back(kSize + 8192);
      model.draw(random);
      if (registered) {
        engine->register_buffer(memory.data(), memory.size());
        engine->register_buffer(back.data(), back.size());
      }
      EXPECT_OK(finish(engine->write(file, 0, model.data(), kSize)));
      for (int round = 0; round < 60; ++round) {
        const uint64_t grain = std::array{1, 512, 4096}[random() % 3];
        const uint64_t offset = random() % (kSize - 1) / grain * grain;
        const uint64_t bytes = std::min(kSize - offset, random() % (round % 2 == 0 ? 9000 : kSize));
        // Half of them lie in memory as they lie in the file, as far as pages go.
        const uint64_t at = random() % 2 == 0 ? offset % 4096 : random() % 4096;
        model.draw(random, offset, bytes);
        std::memcpy(memory.data() + at, model.data() + offset, bytes);
        EXPECT_OK(finish(engine->write(file, offset, memory.data() + at, bytes)));
        EXPECT_OK(finish(engine->read(file, offset, back.data() + at, bytes)));
        ASSERT_EQ(std::memcmp(back.data() + at, memory.data() + at, bytes), 0)
            << bytes << " bytes at " << offset << " from " << at;
      }
      EXPECT_OK(finish(engine->read(file, 0, back.data(), kSize)));
      EXPECT_EQ(std::memcmp(back.data(), model.data(), kSize), 0);
      EXPECT_THAT(engine->take_notices(), testing::IsEmpty());
      if (registered) {
        engine->unregister_buffer(memory.data());
        engine->unregister_buffer(back.data());
      }
    }
  }
}

TEST_P(IoEngineTest, TakesEverySmallSize) {
  std::mt19937_64 random(11);
  const auto engine = this->engine();
  const auto file = this->file(engine);
  Bytes from(16384), to(16384);
  from.draw(random);
  for (uint64_t bytes = 1; bytes <= 8193; bytes += bytes < 20 || bytes % 512 > 508 ? 1 : 7) {
    const uint64_t offset = bytes % 3 * 4096 + bytes % 5;
    EXPECT_OK(finish(engine->write(file, offset, from.data() + bytes % 7, bytes)));
    EXPECT_OK(finish(engine->read(file, offset, to.data(), bytes)));
    ASSERT_EQ(std::memcmp(to.data(), from.data() + bytes % 7, bytes), 0) << bytes;
  }
}

// Neighbours that share pages, under way at the same time.
TEST_P(IoEngineTest, KeepsNeighboursApart) {
  std::mt19937_64 random(13);
  const auto engine = this->engine({.block = 16384, .depth = 16, .threads = 4});
  const auto file = this->file(engine);
  constexpr uint64_t kSize = 2 << 20;
  Bytes from(kSize), to(kSize);
  from.draw(random);
  std::vector<std::shared_ptr<IoTicket>> tickets;
  for (uint64_t at = 0; at < kSize;) {
    const uint64_t bytes = std::min(kSize - at, 1 + random() % 20000);
    tickets.push_back(engine->write(file, at, from.data() + at, bytes));
    at += bytes;
  }
  std::shuffle(tickets.begin(), tickets.end(), random);
  for (const auto& ticket : tickets) EXPECT_OK(finish(ticket));
  EXPECT_OK(finish(engine->read(file, 0, to.data(), kSize)));
  EXPECT_EQ(to.copy(), from.copy());
}

TEST_P(IoEngineTest, SeveralThreadsAskAtATime) {
  constexpr int kThreads = 4;
  constexpr uint64_t kEach = 1 << 20;
  const auto engine = this->engine({.block = 65536, .depth = 8, .threads = 2});
  const auto file = this->file(engine);
  std::atomic<int> ended{0};
  engine->on_end([&] { ++ended; });
  std::atomic<int> wrong{0}, asked{0};
  std::vector<std::thread> threads;
  for (int number = 0; number < kThreads; ++number) {
    threads.emplace_back([&, number] {
      std::mt19937_64 random(static_cast<uint64_t>(number));
      Bytes from(kEach), to(kEach);
      const uint64_t base = static_cast<uint64_t>(number) * kEach;
      for (int round = 0; round < 5; ++round) {
        from.draw(random);
        std::vector<std::shared_ptr<IoTicket>> tickets;
        for (uint64_t at = 0; at < kEach; at += 100'000) {
          tickets.push_back(engine->write(file, base + at, from.data() + at,
                                          std::min<uint64_t>(kEach - at, 100'000)));
        }
        asked += static_cast<int>(tickets.size()) + 1;
        for (const auto& ticket : tickets) wrong += finish(ticket).ok() ? 0 : 1;
        wrong += finish(engine->read(file, base, to.data(), kEach)).ok() ? 0 : 1;
        wrong += std::memcmp(from.data(), to.data(), kEach) == 0 ? 0 : 1;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  // The last calls may come a moment after their tickets' waiters return; none after this.
  engine->on_end({});
  EXPECT_LE(ended, asked);
  EXPECT_GE(ended, asked - kThreads * 2);
  const IoCounters counters = engine->counters();
  EXPECT_EQ(counters.bytes_read, kThreads * 5 * kEach);
  EXPECT_EQ(counters.bytes_written, kThreads * 5 * kEach);
  EXPECT_GE(counters.requests, 2 * kThreads * 5 * kEach / 65536);
}

TEST_P(IoEngineTest, ShortFileIsAnErrorThatNamesIt) {
  const auto engine = this->engine();
  const auto file = this->file(engine);
  Bytes bytes(1 << 20);
  EXPECT_OK(finish(engine->write(file, 0, bytes.data(), 5000)));
  EXPECT_OK(finish(engine->read(file, 0, bytes.data(), 5000)));
  for (const uint64_t length : {5001ul, 8192ul, 1ul << 20}) {
    const Status status = finish(engine->read(file, 0, bytes.data(), length));
    ASSERT_FALSE(status.ok()) << length;
    EXPECT_EQ(status.error().code(), MERON_E_IO);
    EXPECT_EQ(status.error().info().subject, file->path());
    EXPECT_THAT(status.error().info().what, testing::HasSubstr("the file is shorter than"));
  }
  EXPECT_OK(finish(engine->read(file, 4999, bytes.data(), 1)));
  EXPECT_FALSE(finish(engine->read(file, 5000, bytes.data(), 1)).ok());
}

TEST_P(IoEngineTest, RefusesWhatMakesNoSense) {
  const auto engine = this->engine();
  const auto file = this->file(engine);
  Bytes bytes(4096);
  EXPECT_EQ(finish(engine->read(file, 0, nullptr, 1)).error().code(), MERON_E_ARGUMENT);
  EXPECT_EQ(finish(engine->read(nullptr, 0, bytes.data(), 1)).error().code(), MERON_E_ARGUMENT);
  EXPECT_EQ(finish(engine->write(file, UINT64_MAX, bytes.data(), 2)).error().code(),
            MERON_E_ARGUMENT);
  EXPECT_EQ(finish(engine->write(file, 1, bytes.data(), UINT64_MAX)).error().code(),
            MERON_E_ARGUMENT);
  EXPECT_OK(finish(engine->read(file, 123, bytes.data(), 0)));
  EXPECT_OK(finish(engine->read(file, 123, nullptr, 0)));
  for (const IoOptions& options :
       {IoOptions{.block = 0}, IoOptions{.block = 5000}, IoOptions{.depth = 0},
        IoOptions{.depth = 5000}, IoOptions{.threads = 0}}) {
    EXPECT_EQ(IoEngine::create(options).error().code(), MERON_E_ARGUMENT);
  }
}

TEST_P(IoEngineTest, ClosingEndsWhatWasAskedForAndLeavesNothing) {
  const int threads = threads_of_this_process(), descriptors = open_descriptors();
  Bytes from(4 << 20), to(4 << 20);
  std::mt19937_64 random(3);
  from.draw(random);
  for (int round = 0; round < 10; ++round) {
    auto engine = this->engine({.block = 4096, .depth = 4, .threads = 3});
    auto file = this->file(engine);
    engine->register_buffer(from.data(), from.size());
    std::vector<std::shared_ptr<IoTicket>> tickets;
    for (uint64_t at = 0; at < from.size(); at += 1 << 20) {
      tickets.push_back(engine->write(file, at, from.data() + at, 1 << 20));
    }
    engine.reset();
    for (const auto& ticket : tickets) {
      EXPECT_TRUE(ticket->done());
      EXPECT_OK(ticket->status());
    }
    file.reset();
  }
  EXPECT_EQ(threads_of_this_process(), threads);
  EXPECT_EQ(open_descriptors(), descriptors);
}

TEST_P(IoEngineTest, FilesMayGoBeforeTheirTransfersEnd) {
  const auto engine = this->engine({.block = 4096, .depth = 2});
  Bytes bytes(1 << 20);
  // More than the kernel's table of files holds.
  for (int round = 0; round < 200; ++round) {
    auto file = this->file(engine);
    const auto ticket = engine->write(file, 0, bytes.data(), round % 4 == 0 ? 100'000 : 1);
    file.reset();
    EXPECT_OK(finish(ticket));
  }
  std::vector<std::shared_ptr<IoFile>> files;
  for (int number = 0; number < 100; ++number) files.push_back(this->file(engine));
  for (const auto& file : files) EXPECT_OK(finish(engine->write(file, 0, bytes.data(), 8192)));
}

TEST_P(IoEngineTest, ABufferMayComeAndGoBetweenTransfers) {
  const auto engine = this->engine({.block = 16384});
  const auto file = this->file(engine);
  std::mt19937_64 random(5);
  for (int round = 0; round < 30; ++round) {
    // Often at the same address as before, with pages of its own.
    Bytes from(1 << 20), to(1 << 20);
    from.draw(random);
    engine->register_buffer(from.data(), from.size());
    if (round % 2 == 0) engine->register_buffer(to.data(), to.size() / 2 + 100);
    EXPECT_OK(finish(engine->write(file, 0, from.data(), from.size())));
    EXPECT_OK(finish(engine->read(file, 0, to.data(), to.size())));
    ASSERT_EQ(std::memcmp(from.data(), to.data(), from.size()), 0) << round;
    engine->unregister_buffer(from.data());
    engine->unregister_buffer(to.data());
  }
}

TEST_P(IoEngineTest, AForkDoesNothing) {
  const auto engine = this->engine();
  auto file = this->file(engine);
  Bytes bytes(8 << 20);
  std::mt19937_64 random(9);
  bytes.draw(random);
  const auto under_way = engine->write(file, 0, bytes.data(), bytes.size());
  const pid_t child = ::fork();
  if (child == 0) {
    // Destructors at a child's end must not wait for threads of the parent.
    auto copy = engine;
    const auto ticket = copy->read(file, 0, bytes.data(), 10);
    if (!ticket->done() || ticket->status().error().code() != MERON_E_FORKED) ::_exit(1);
    if (!under_way->done() && under_way->wait(1'000'000'000)) ::_exit(2);
    copy->register_buffer(bytes.data(), 4096);
    copy->on_end([] {});
    if (!copy->take_notices().empty()) ::_exit(3);
    file.reset();
    const_cast<std::shared_ptr<IoEngine>&>(engine).reset();
    copy.reset();
    ::_exit(0);
  }
  ASSERT_GT(child, 0);
  EXPECT_OK(finish(under_way));
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  Bytes back(bytes.size());
  EXPECT_OK(finish(engine->read(file, 0, back.data(), back.size())));
  EXPECT_EQ(back.copy(), bytes.copy());
}

TEST_P(IoEngineTest, WaitingIsBounded) {
  IoTicket ticket(1);
  const int64_t begin = now_ns();
  EXPECT_FALSE(ticket.wait(20 * kNanosPerMilli));
  EXPECT_GE(now_ns() - begin, 20 * kNanosPerMilli);
  EXPECT_FALSE(ticket.wait(0));
  EXPECT_EQ(ticket.status().error().code(), MERON_E_STATE);
  ticket.end({});
  EXPECT_TRUE(ticket.wait(0));
  EXPECT_OK(ticket.status());
}

}  // namespace
}  // namespace meron

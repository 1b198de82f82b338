// SPDX-License-Identifier: Apache-2.0
// How a context is closed: with peers that died, threads that wait, and tensors that others keep.
#include <sys/mman.h>

#include "tests/conformance/c/dlpack.h"
#include "tests/fault/contexts.h"

namespace meron::test {
namespace {

constexpr int64_t kClosedWithin = 5 * kSecond;

// A tensor that went out by DLPack belongs to whoever has it, longer than the context.
TEST(Close, LeavesExportedTensorsReadable) {
  for (const char* plan : {"zero0", "zero3"}) {
    Open open;
    open.plan = plan;
    open.token = fresh_token();
    Job job(2, [&](int rank, Report& report) {
      Session session(open, rank);
      session.build();
      session.update(0, 2.5f);
      meron_future gather{};
      MUST(meron_gather_begin, &gather, session.units.data(), 1, nullptr);
      MUST(meron_future_wait, gather, MERON_TIMEOUT_DEFAULT);
      DLManagedTensorVersioned* tensor = nullptr;
      MUST(meron_gather_dlpack, &tensor, gather, session.params[0]);
      session.barrier();
      session.close();
      const auto* values = static_cast<const float*>(tensor->dl_tensor.data);
      for (int64_t i = 0; i < tensor->dl_tensor.shape[0] * tensor->dl_tensor.shape[1]; ++i) {
        report.numbers[0] += values[i] == 2.5f ? 1 : 0;
      }
      tensor->deleter(tensor);
    });
    ASSERT_TRUE(job.wait(20 * kSecond));
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(MERON_OK, job[rank].status) << job[rank].message;
      EXPECT_TRUE(exited_well(job.status(rank)));
      EXPECT_EQ(37 * 13, job[rank].numbers[0]);
    }
  }
}

TEST(Close, WithADeadPeerAndOperationsUnderWay) {
  for (const char* plan : {"zero0", "zero3"}) {
    const Open open = open_as("shm", 2, plan);
    Shared<std::atomic<int>> dead(1);
    Job job(2, [&](int rank, Report& report) {
      Session session(open, rank);
      session.build();
      session.barrier();
      report.mark = 1;
      while (rank == 1) pause();
      while (dead[0].load() == 0) sleep_ns(kMilli);
      static float data[100'000];
      meron_future future{};
      MUST(meron_all_reduce_begin, &future, session.world, data, 100'000, MERON_F32,
           MERON_REDUCE_OP_SUM);
      session.reduce_begin(0, 1.0f);
      meron_future gather{};
      MUST(meron_gather_begin, &gather, session.units.data(), 2, nullptr);
      report.times[0] = now_ns();
      session.close();
      report.times[0] = now_ns() - report.times[0];
    });
    ASSERT_TRUE(job.reached(1));
    job.signal(1, SIGKILL);
    sleep_ns(20 * kMilli);
    dead[0] = 1;
    ASSERT_TRUE(job.wait(30 * kSecond));
    EXPECT_EQ(MERON_OK, job[0].status) << job[0].message;
    EXPECT_LT(job[0].times[0], kClosedWithin);
  }
}

// Threads in every kind of wait, one of them a full ring ahead, notice a close by another thread.
TEST(Close, WhileOtherThreadsWait) {
  for (const char* transport : {"shm", "local"}) {
    Open open = open_as(transport, 2, R"({"preset": "zero2", "gradient_buckets": 1})");
    open.timeout_ns = 60 * kSecond;
    Shared<std::atomic<int>> done(1);
    Job job(
        2,
        [&](int rank, Report& report) {
          Session session(open, rank);
          session.build();
          session.barrier();
          if (rank == 1) {
            session.reduce_begin(0, 1.0f);
            while (done[0].load() == 0) sleep_ns(kMilli);
            session.close();
            return;
          }
          sleep_ns(20 * kMilli);
          session.reduce(0, 1.0f);
          MUST(meron_reduce_discard, session.units[0]);
          meron_future barrier{};
          MUST(meron_barrier_begin, &barrier, session.world);
          std::vector<std::thread> waiting;
          std::atomic<int> inside{0};
          const auto wait_for = [&](int place, std::function<meron_status()> call) {
            waiting.emplace_back([&report, &inside, place, call = std::move(call)] {
              ++inside;
              report.numbers[place] = call();
              report.times[place] = now_ns();
            });
          };
          wait_for(0, [&] { return meron_future_wait(barrier, MERON_TIMEOUT_DEFAULT, nullptr); });
          wait_for(1, [&] { return meron_future_wait(barrier, 30 * kSecond, nullptr); });
          wait_for(2, [&] {
            meron_view view{};
            return meron_gradient_view(&view, session.params[2], 0, nullptr);
          });
          sleep_ns(60 * kMilli);
          wait_for(3, [&] {
            meron_status status = MERON_OK;
            for (int i = 0; i < 1100 && status == MERON_OK; ++i) {
              meron_future gather{};
              status = meron_gather_begin(&gather, session.units.data(), 1, nullptr, nullptr);
              if (status == MERON_OK) (void)meron_future_release(gather, nullptr);
            }
            return status;
          });
          while (inside.load() < 4) sleep_ns(kMilli);
          sleep_ns(60 * kMilli);
          report.times[4] = now_ns();
          session.close();
          report.times[5] = now_ns();
          for (std::thread& thread : waiting) thread.join();
          done[0] = 1;
        },
        threads(open));
    expect_well(job);
    const Report& report = job[0];
    EXPECT_LT(report.times[5] - report.times[4], kClosedWithin);
    for (int place = 0; place < 4; ++place) {
      const meron_status status = report.numbers[place];
      EXPECT_TRUE(status == MERON_E_CLOSED || status == MERON_E_STALE)
          << transport << " wait " << place << ": " << meron_status_name(status);
      EXPECT_LT(report.times[place] - report.times[4], kSecond) << "wait " << place;
    }
  }
}

// After close has returned, no rank touches memory that the caller passed, even if peers still
// wait.
TEST(Close, LetsGoOfTheCallersMemory) {
  const Open open = open_as("shm", 2);
  constexpr size_t kBytes = 8 << 20;
  Job job(2, [&](int rank, Report&) {
    for (int round = 0; round < 8; ++round) {
      Open again = open;
      again.token[63] = static_cast<char>('0' + round);
      Session session(again, rank);
      session.barrier();
      void* const memory =
          mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      meron_future future{};
      MUST(meron_all_reduce_begin, &future, session.world, memory, kBytes / 4, MERON_F32,
           MERON_REDUCE_OP_SUM);
      std::thread waiting(
          [&] { (void)!meron_future_wait(future, MERON_TIMEOUT_DEFAULT, nullptr); });
      sleep_ns(round * kMilli / 4);
      session.close();
      munmap(memory, kBytes);
      waiting.join();
    }
  });
  expect_well(job);
}

TEST(Close, AndOpenAgain) {
  for (const char* transport : {"shm", "local", "self"}) {
    const Open open = open_as(transport, std::strcmp(transport, "self") == 0 ? 1 : 3, "zero1");
    Job job(
        open.ranks,
        [&](int rank, Report&) {
          for (int round = 0; round < 12; ++round) {
            Session session(open, rank);
            session.build();
            train(session, 2);
            session.close();
          }
        },
        threads(open));
    expect_well(job);
  }
}

// Two jobs of the same processes, with the ranks in another order, one step here and one there.
TEST(Close, TwoContextsAtOnce) {
  const Open here = open_as("shm", 2, "zero2");
  const Open there = open_as("shm", 2, "zero2");
  Job job(2, [&](int rank, Report& report) {
    Session first(here, rank);
    Session second(there, 1 - rank);
    first.build();
    second.build();
    for (int step = 0; step < 10; ++step) {
      train(first, 1);
      train(second, 1);
    }
    report.times[0] = bits_of(first.gather(0));
    first.close();
    train(second, 1);
    report.times[1] = bits_of(second.gather(0));
    second.close();
  });
  expect_well(job);
  EXPECT_EQ(job[0].times[0], job[1].times[0]);
  EXPECT_EQ(job[0].times[1], job[1].times[1]);
}

}  // namespace
}  // namespace meron::test

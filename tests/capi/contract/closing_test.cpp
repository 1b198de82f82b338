// SPDX-License-Identifier: Apache-2.0
// A close waits for callbacks that run: afterwards nothing uses their `user`.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <thread>

#include "tests/fault/rank.h"

namespace meron::test {
namespace {

// The `user` of a should_stop that takes long.
struct Slow {
  std::atomic<bool> armed{false};  // after the open, which asks it too
  std::atomic<bool> inside{false}, left{false}, closed{false}, used_after_close{false};
  std::function<void()> meanwhile = [] { sleep_ns(700 * kMilli); };

  int32_t run() {
    if (!armed || inside.exchange(true)) return 0;
    meanwhile();
    used_after_close = closed.load();
    left = true;
    return 0;
  }
};

// Rank 0 of two. Its peer is there, and begins nothing.
class WithASilentPeer : public testing::Test {
 protected:
  WithASilentPeer() {
    open_.transport = "local";
    open_.token = fresh_token();
    open_.adjust = [this](int rank, meron_context_options& options) {
      if (rank != 0) return;
      options.should_stop_user = &slow;
      options.should_stop = [](void* user) -> int32_t { return static_cast<Slow*>(user)->run(); };
    };
    peer_ = std::thread([this] {
      const Session silent(open_, 1);
      while (!done_) sleep_ns(kMilli);
      (void)meron_context_close(silent.context, nullptr);
    });
    session = std::make_unique<Session>(open_, 0);
  }
  ~WithASilentPeer() override {
    done_ = true;
    peer_.join();
  }

  // Waits for a barrier on a thread of its own, until the callback runs there.
  std::thread wait_for_the_peer() {
    meron_future barrier{};
    MUST(meron_barrier_begin, &barrier, session->world);
    slow.armed = true;
    std::thread waiter(
        [this, barrier] { waited = meron_future_wait(barrier, MERON_TIMEOUT_DEFAULT, nullptr); });
    while (!slow.inside) sleep_ns(kMilli);
    return waiter;
  }

  Slow slow;
  std::unique_ptr<Session> session;
  meron_status waited = MERON_OK;

 private:
  Open open_;
  std::atomic<bool> done_{false};
  std::thread peer_;
};

TEST_F(WithASilentPeer, ACloseWaitsForARunningCallback) {
  std::thread waiter = wait_for_the_peer();
  EXPECT_EQ(MERON_OK, meron_context_close(session->context, nullptr));
  EXPECT_TRUE(slow.left) << "close returned while should_stop was running";
  slow.closed = true;
  waiter.join();
  EXPECT_FALSE(slow.used_after_close);
  EXPECT_EQ(MERON_E_CLOSED, waited);
}

TEST_F(WithASilentPeer, ShouldStopMayCloseItsContext) {
  slow.meanwhile = [this] { EXPECT_EQ(MERON_OK, meron_context_close(session->context, nullptr)); };
  wait_for_the_peer().join();
  EXPECT_TRUE(slow.left);
  EXPECT_EQ(MERON_E_CLOSED, waited);
  EXPECT_EQ(MERON_E_STALE, meron_context_close(session->context, nullptr));
}

}  // namespace
}  // namespace meron::test

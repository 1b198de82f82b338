// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "tests/fault/rank.h"

namespace meron::test {

// Two ranks as threads. Rank 1 runs `peer`, and closes its context at the end of the test.
class TwoRanks : public testing::Test {
 protected:
  TwoRanks() {
    open.transport = "local";
    open.token = fresh_token();
  }
  ~TwoRanks() override {
    go = done = true;  // also after an assertion that failed
    if (thread_.joinable()) thread_.join();
  }
  // The session of rank 0.
  Session& start(std::function<void(Session&)> peer) {
    thread_ = std::thread([this, peer = std::move(peer)] {
      Session other(open, 1);
      peer(other);
      while (!done) sleep_ns(kMilli);
      (void)meron_context_close(other.context, nullptr);
    });
    session_ = std::make_unique<Session>(open, 0);
    return *session_;
  }
  void await_go() const {
    while (!go) sleep_ns(kMilli);
  }

  Open open;
  std::atomic<bool> go{false}, done{false};

 private:
  std::thread thread_;
  std::unique_ptr<Session> session_;
};

}  // namespace meron::test

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "call_log/channel.h"
#include "tests/unit/rendezvous/meeting.h"

namespace meron {

// Two ranks in two threads of the test.
struct TwoRanks {
  explicit TwoRanks(const std::string& job) {
    std::thread other(
        [&] { joined[1] = std::make_unique<Result<Joined>>(join_local(meeting(1, 2), job)); });
    joined[0] = std::make_unique<Result<Joined>>(join_local(meeting(0, 2), job));
    other.join();
    for (int rank = 0; rank < 2; ++rank) {
      transports[rank] = std::make_unique<Transport>(std::move(**joined[rank]));
      const auto offset = transports[rank]->window_allocate(group_bytes(2), "test");
      EXPECT_TRUE(transports[rank]->window().reserve(*offset, group_bytes(2)).ok());
      channels[rank] = std::make_unique<Channel>(*transports[rank], counters[rank],
                                                 Members::world(2, rank), *offset, 0);
    }
  }
  std::unique_ptr<Result<Joined>> joined[2];
  std::unique_ptr<Transport> transports[2];
  Counters counters[2];
  std::unique_ptr<Channel> channels[2];
};

}  // namespace meron

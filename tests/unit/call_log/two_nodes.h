// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "base/layout.h"
#include "call_log/channel.h"
#include "tests/unit/transport/message_queue.h"

namespace meron {

// Two ranks that share no memory, in one thread of the test: neither sees what the other did before
// it pumps.
struct TwoNodes {
  TwoNodes() {
    std::unique_ptr<Link> links[2];
    for (int rank = 0; rank < 2; ++rank) {
      queues[rank].peer = &queues[1 - rank];
      links[rank] = std::make_unique<Link>(queues[rank].table(), rank, 2,
                                           hello_of(static_cast<uint64_t>(rank)));
    }
    for (int i = 0; i < 2; ++i) {
      for (const auto& link : links) (void)link->pump();
    }
    for (int rank = 0; rank < 2; ++rank) {
      Joined joined;
      joined.transport = "queue";
      joined.rank = rank;
      joined.world_size = 2;
      joined.window = std::move(Window::create(64 << 20)).value();
      EXPECT_TRUE(joined.window->reserve(0, header_bytes(2)).ok());
      joined.peers.resize(2);
      joined.pids = {0, 0};
      joined.nodes = {0, 1};
      joined.link = std::move(links[rank]);
      joined.link->attach(joined.window, joined.nodes);
      transports[rank] = std::make_unique<Transport>(std::move(joined));
      const auto offset = transports[rank]->window_allocate(group_bytes(2), "test");
      EXPECT_TRUE(transports[rank]->window().reserve(*offset, group_bytes(2)).ok());
      channels[rank] = std::make_unique<Channel>(*transports[rank], counters[rank],
                                                 Members::world(2, rank), *offset, 0);
    }
  }
  // Sends the rank's queued messages, and receives the other's.
  void pump(int rank) { transports[rank]->pump(); }

  MessageQueue queues[2];
  std::unique_ptr<Transport> transports[2];
  Counters counters[2];
  std::unique_ptr<Channel> channels[2];
};

}  // namespace meron

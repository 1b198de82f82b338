// SPDX-License-Identifier: Apache-2.0
#include "transport/link.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <set>
#include <vector>

#include "tests/unit/transport/message_queue.h"
#include "transport/control.h"

namespace meron {
namespace {

// A transport with sends that never end, or end on request.
struct Slow {
  std::set<uint64_t> under_way, ended;
  uint64_t next = 1;
};

meron_transport table_of(Slow& slow) {
  meron_transport table = MERON_TRANSPORT_INIT;
  table.user = &slow;
  table.send = [](void* user, uint64_t* request, int32_t, uint64_t, const void*, uint64_t) {
    auto& self = *static_cast<Slow*>(user);
    *request = self.next++;
    self.under_way.insert(*request);
    return meron_status{MERON_OK};
  };
  table.receive = [](void*, uint64_t* request, int32_t, uint64_t, void*, uint64_t) {
    *request = 0;
    return meron_status{MERON_OK};
  };
  table.test = [](void* user, uint64_t request, uint64_t*) {
    auto& self = *static_cast<Slow*>(user);
    if (self.ended.erase(request) == 0) return meron_status{MERON_IN_PROGRESS};
    self.under_way.erase(request);
    return meron_status{MERON_OK};
  };
  table.cancel = [](void* user, uint64_t request) {
    static_cast<Slow*>(user)->under_way.erase(request);
  };
  return table;
}

// The trainer may leave the engine for long: what was said in a call must be on its way when the
// call ends, also while messages before it are.
TEST(Link, NothingWaitsForTheEndOfASend) {
  Slow slow;
  Link link(table_of(slow), 0, 2, {});
  link.attach(std::move(Window::create(1 << 20)).value(), {0, 1});
  const std::array ranks = {0, 1};
  constexpr uint64_t kWord = 512 << 10;
  (void)link.pump();
  const size_t at_first = slow.under_way.size();
  for (uint64_t i = 1; i <= 5; ++i) {
    link.store_word(ranks, kWord, i);
    (void)link.pump();
    EXPECT_EQ(slow.under_way.size(), at_first + i);
  }
  link.close(0);
  EXPECT_TRUE(slow.under_way.empty()) << "a request was neither ended nor cancelled";
}

// Messages arrive in the order of their begin, and the earliest call waits only for its own
// messages.
TEST(Link, SendsTakeTurns) {
  Slow slow;
  Link link(table_of(slow), 0, 3, {});
  link.attach(std::move(Window::create(1 << 20)).value(), {0, 1, 2});
  link.move_in_turn();
  (void)link.pump();
  const size_t before = slow.under_way.size();
  const std::vector<std::byte> data(1 << 20);
  const auto batch = std::make_shared<Batch>(3);
  const auto started_by = [&](int rank, uint32_t channel, uint64_t call, uint32_t phase) {
    const size_t then = slow.under_way.size();
    link.send(batch, rank, tag_of(channel, call, phase), data.data(), data.size());
    (void)link.pump();
    return slow.under_way.size() - then;
  };
  EXPECT_EQ(started_by(1, 0, 4095, 0), 1u);
  EXPECT_EQ(started_by(1, 0, 4096, 0), 1u) << "the next, while there is room";
  EXPECT_EQ(started_by(1, 0, 4097, 0), 0u) << "the link is full of earlier calls'";
  EXPECT_EQ(started_by(1, 0, 4095, 1), 1u) << "another message of the earliest call";
  EXPECT_EQ(started_by(1, 0, 4095, 2), 0u) << "the link is full of its own";
  EXPECT_EQ(started_by(2, 0, 4097, 0), 1u) << "to another rank";
  EXPECT_EQ(started_by(1, 1, 9, 0), 1u) << "of another channel, whose calls are no later";
  EXPECT_EQ(slow.under_way.size(), before + 5);
  // Those that have ended make room for the next in turn.
  EXPECT_EQ(started_by(1, 0, 4098, 0), 0u);
  for (const size_t left : {2u, 1u, 0u}) {
    slow.ended = slow.under_way;
    (void)link.pump();
    EXPECT_EQ(slow.under_way.size(), left);
    EXPECT_EQ(batch->done(), left == 0);
  }
  link.close(0);
}

// The earliest call of all is served also when it asks last.
TEST(Link, AnEarlierCallOvertakes) {
  Slow slow;
  Link link(table_of(slow), 0, 2, {});
  link.attach(std::move(Window::create(1 << 20)).value(), {0, 1});
  link.move_in_turn();
  (void)link.pump();
  const size_t before = slow.under_way.size();
  const std::vector<std::byte> data(4 << 20);
  const auto batch = std::make_shared<Batch>(2);
  for (const uint64_t call : {8u, 9u, 7u}) {
    link.send(batch, 1, tag_of(0, call, 0), data.data(), data.size());
  }
  (void)link.pump();
  EXPECT_EQ(slow.under_way.size(), before + 2) << "calls 8 and 7, and not 9";
  link.close(0);
}

// However long a transfer is, few of its messages are under way at a time, in order, each as long
// as the transport allows; all of them count.
TEST(Link, LongTransfersGoInPieces) {
  struct Pieces : Slow {
    std::vector<const void*> places;
    std::vector<uint64_t> sizes;
  } slow;
  meron_transport table = table_of(slow);
  table.max_message = 1 << 20;
  table.send = [](void* user, uint64_t* request, int32_t, uint64_t tag, const void* data,
                  uint64_t bytes) {
    auto& self = *static_cast<Pieces*>(static_cast<Slow*>(user));
    *request = self.next++;
    self.under_way.insert(*request);
    if (tag != 0) {
      self.places.push_back(data);
      self.sizes.push_back(bytes);
    }
    return meron_status{MERON_OK};
  };
  Link link(table, 0, 2, {});
  link.attach(std::move(Window::create(1 << 20)).value(), {0, 1});
  link.move_in_turn();
  (void)link.pump();
  slow.ended = slow.under_way;
  (void)link.pump();
  ASSERT_TRUE(slow.under_way.empty());
  const std::vector<std::byte> data((5 << 20) + 8);
  const auto batch = std::make_shared<Batch>(2);
  link.send(batch, 1, tag_of(0, 1, 0), data.data(), data.size());
  link.send(batch, 1, tag_of(0, 1, 1), data.data(), 16);
  for (const size_t under_way : {2u, 2u, 3u}) {
    (void)link.pump();
    EXPECT_EQ(slow.under_way.size(), under_way);
    EXPECT_FALSE(batch->done());
    slow.ended = slow.under_way;
  }
  (void)link.pump();
  EXPECT_TRUE(batch->done());
  const uint64_t whole = 1 << 20;
  EXPECT_EQ(slow.sizes, (std::vector<uint64_t>{whole, whole, whole, whole, whole, 8, 16}));
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(slow.places[i], data.data() + i * whole);
  EXPECT_EQ(slow.places[6], data.data());
  link.close(0);
}

// A rank that has done its part leaves, and its connection ends, before a slower one asks for what
// it sent: that is in the transport.
TEST(Link, WhatARankSentBeforeItLeftIsStillReceived) {
  Slow slow;
  meron_transport table = table_of(slow);
  table.receive = [](void*, uint64_t* request, int32_t, uint64_t tag, void*, uint64_t) {
    *request = tag;
    return meron_status{tag == 0 ? MERON_E_IO : MERON_OK};
  };
  table.test = [](void*, uint64_t, uint64_t* bytes) {
    *bytes = 128;
    return meron_status{MERON_OK};
  };
  for (const bool left : {true, false}) {
    Link link(table, 0, 2, {});
    const std::shared_ptr<Window> window = std::move(Window::create(1 << 20)).value();
    auto* const ranks = reinterpret_cast<RankBlock*>(window->writable(sizeof(WindowHeader)));
    ranks[1].left.store(left ? 1 : 0);
    link.attach(window, {0, 1});
    (void)link.pump();
    std::array<std::byte, 128> data{};
    const auto batch = std::make_shared<Batch>(2);
    link.receive(batch, 1, tag_of(0, 1, 0), data.data(), data.size());
    (void)link.pump();
    EXPECT_EQ(batch->done(), left) << "of a rank that ended without a word nothing comes";
    link.close(0);
  }
}

// Ranks 0 and 1 are one node, 2 and 3 another: what 2 says comes by way of 0, which may not have
// been running since. A rank that said that it leaves, and ended, is not dead.
TEST(Link, TheEndOfARankWaitsForTheMateThatItTells) {
  Slow slow;
  meron_transport table = table_of(slow);
  table.receive = [](void*, uint64_t*, int32_t, uint64_t, void*, uint64_t) {
    return meron_status{MERON_E_IO};
  };
  Link link(table, 1, 4, {});
  link.attach(std::move(Window::create(1 << 20)).value(), {0, 0, 1, 1});
  (void)link.pump();
  EXPECT_TRUE(link.gone(3)) << "it would have told this rank";
  EXPECT_FALSE(link.gone(2));
  link.close(0);
}

// Ranks 0 and 1 are one node, and 0 receives word of what 2 did. If 0 has not read yet that 2 left,
// rank 1 finds the end of its connection first, and still receives what 2 sent.
TEST(Link, WhatARankSentIsReceivedBeforeTheWordThatItLeft) {
  Slow slow;
  meron_transport table = table_of(slow);
  table.receive = [](void*, uint64_t* request, int32_t, uint64_t tag, void*, uint64_t) {
    *request = tag;
    return meron_status{tag == 0 ? MERON_E_IO : MERON_OK};
  };
  table.test = [](void*, uint64_t, uint64_t* bytes) {
    *bytes = 128;
    return meron_status{MERON_OK};
  };
  Link link(table, 1, 3, {});
  link.attach(std::move(Window::create(1 << 20)).value(), {0, 0, 1});
  (void)link.pump();
  ASSERT_FALSE(link.gone(2));
  std::array<std::byte, 128> data{};
  const auto batch = std::make_shared<Batch>(3);
  link.receive(batch, 2, tag_of(0, 1, 0), data.data(), data.size());
  (void)link.pump();
  EXPECT_TRUE(batch->done());
  link.close(0);
}

// Ranks 1 and 2 are one node, and 1 writes what rank 0 says to it, until it leaves. Then 2 does,
// but not before 1 has written all: a word stays behind the data that it announces.
TEST(Link, TheNextRelayWaitsUntilTheLastHasWrittenAll) {
  struct Relays {
    std::array<int, 3> sent{};                   // messages, by rank
    std::array<std::vector<std::byte>, 3> said;  // what a rank has to say, once
    std::array<std::byte*, 3> into{};
  } relays;
  meron_transport table = MERON_TRANSPORT_INIT;
  table.user = &relays;
  table.send = [](void* user, uint64_t* request, int32_t rank, uint64_t, const void*, uint64_t) {
    ++static_cast<Relays*>(user)->sent[static_cast<size_t>(rank)];
    *request = 0;
    return meron_status{MERON_OK};
  };
  table.receive = [](void* user, uint64_t* request, int32_t rank, uint64_t, void* to, uint64_t) {
    static_cast<Relays*>(user)->into[static_cast<size_t>(rank)] = static_cast<std::byte*>(to);
    *request = static_cast<uint64_t>(rank);
    return meron_status{MERON_OK};
  };
  table.test = [](void* user, uint64_t request, uint64_t* bytes) {
    auto& self = *static_cast<Relays*>(user);
    if (request == 0) return meron_status{MERON_OK};
    auto& said = self.said[request];
    if (said.empty()) return meron_status{MERON_IN_PROGRESS};
    *bytes = said.size();
    std::memcpy(self.into[request], said.data(), said.size());
    said.clear();
    return meron_status{MERON_OK};
  };
  table.cancel = [](void*, uint64_t) {};

  Link link(table, 0, 3, {});
  const std::shared_ptr<Window> window = std::move(Window::create(1 << 20)).value();
  link.attach(window, {0, 1, 1});
  const std::array ranks = {1, 2};
  constexpr uint64_t kWord = 512 << 10;
  const auto sent_by = [&](int word) {
    const std::array<int, 3> before = relays.sent;
    if (word != 0) link.store_word(ranks, kWord, static_cast<uint64_t>(word));
    (void)link.pump();
    return std::array{relays.sent[1] - before[1], relays.sent[2] - before[2]};
  };
  (void)sent_by(0);  // the greetings
  EXPECT_EQ(sent_by(1), (std::array{1, 0}));
  reinterpret_cast<RankBlock*>(window->writable(sizeof(WindowHeader)))[1].left.store(1);
  EXPECT_EQ(sent_by(0), (std::array{1, 0})) << "bye";
  EXPECT_EQ(sent_by(2), (std::array{0, 0})) << "rank 1 has not said bye";
  const struct {
    uint64_t offset;
    uint32_t bytes, kind;
    uint64_t nothing;
  } bye{0, 8, 4, 0};
  relays.said[1].resize(sizeof(bye));
  std::memcpy(relays.said[1].data(), &bye, sizeof(bye));
  EXPECT_EQ(sent_by(3), (std::array{0, 1})) << "both words in one message";
  link.close(0);
}

// Rank 0's response to a rank 1 with this greeting.
Result<bool> met(const Link::Hello& other) {
  MessageQueue here, there;
  here.peer = &there;
  there.peer = &here;
  Link own(here.table(), 0, 2, hello_of(0)), peer(there.table(), 1, 2, other);
  for (int i = 0; i < 3; ++i) {
    (void)peer.pump();
    (void)own.pump();
  }
  auto result = own.met();
  own.close(0);
  peer.close(0);
  return result;
}

TEST(Link, NamesTheVersionsThatDiffer) {
  const auto alike = met(hello_of(1));
  ASSERT_TRUE(alike.ok()) << alike.error().info().what;
  EXPECT_TRUE(*alike);

  for (const char* part : {"version", "protocol", "layout"}) {
    SCOPED_TRACE(part);
    Link::Hello other = hello_of(1);
    other.version = 9 << 16 | 8 << 8 | 7;
    if (std::strcmp(part, "protocol") == 0) ++other.protocol;
    if (std::strcmp(part, "layout") == 0) ++other.magic;
    const auto result = met(other);
    ASSERT_FALSE(result.ok());
    const ErrorInfo& info = result.error().info();
    EXPECT_EQ(MERON_E_VERSION, info.code);
    EXPECT_EQ(1, info.peer);
    const std::string own = std::to_string(MERON_VERSION_MAJOR) + "." +
                            std::to_string(MERON_VERSION_MINOR) + "." +
                            std::to_string(MERON_VERSION_PATCH);
    EXPECT_EQ("rank 1 runs Meron 9.8.7, rank 0 runs " + own, info.what);
  }
}

}  // namespace
}  // namespace meron

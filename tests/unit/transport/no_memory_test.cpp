// SPDX-License-Identifier: Apache-2.0
// Where memory runs out, a call does nothing, so that it may be made again: nothing is sent in
// part, sent twice, or forgotten while the transport has it. Each test fails every allocation in
// turn.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <vector>

#include "base/layout.h"
#include "tests/unit/transport/failing_allocation.h"
#include "transport/control.h"
#include "transport/link.h"
#include "transport/window_regions.h"

namespace meron {
namespace {

constexpr uint64_t kPlace = 512 << 10;

// A transport whose requests end when the test says so.
struct Requests {
  struct Request {
    int32_t rank;
    uint64_t tag;
    bool sends;
    const void* data;
    uint64_t bytes;
  };
  std::map<uint64_t, Request> under_way;
  std::set<uint64_t> ended;
  std::map<int, std::vector<std::byte>> control;                 // what was sent to each rank
  std::map<std::tuple<int, uint64_t, bool>, int> messages = {};  // by rank, tag, whether sent
  uint64_t next = 1;
  int closed = 0;

  meron_transport table() {
    meron_transport table = MERON_TRANSPORT_INIT;
    table.user = this;
    table.send = [](void* user, uint64_t* request, int32_t rank, uint64_t tag, const void* data,
                    uint64_t bytes) {
      return static_cast<Requests*>(user)->begin(request, {rank, tag, true, data, bytes});
    };
    table.receive = [](void* user, uint64_t* request, int32_t rank, uint64_t tag, void* data,
                       uint64_t bytes) {
      return static_cast<Requests*>(user)->begin(request, {rank, tag, false, data, bytes});
    };
    table.test = [](void* user, uint64_t request, uint64_t* bytes) {
      const OwnMemory own;
      auto& self = *static_cast<Requests*>(user);
      if (self.ended.erase(request) == 0) return meron_status{MERON_IN_PROGRESS};
      *bytes = self.under_way.at(request).bytes;
      self.under_way.erase(request);
      return meron_status{MERON_OK};
    };
    table.cancel = [](void* user, uint64_t request) {
      const OwnMemory own;
      static_cast<Requests*>(user)->under_way.erase(request);
    };
    table.closed = [](void* user) { ++static_cast<Requests*>(user)->closed; };
    return table;
  }
  meron_status begin(uint64_t* request, const Request& what) {
    const OwnMemory own;
    *request = next++;
    under_way.emplace(*request, what);
    if (what.tag != 0) {
      ++messages[{what.rank, what.tag, what.sends}];
    } else if (what.sends) {
      const auto* from = static_cast<const std::byte*>(what.data);
      control[what.rank].insert(control[what.rank].end(), from, from + what.bytes);
    }
    return MERON_OK;
  }
  // Nothing is received that is a control message.
  void end_all() {
    for (const auto& [request, what] : under_way) {
      if (what.tag != 0 || what.sends) ended.insert(request);
    }
  }
};

struct Record {
  uint64_t offset;
  uint32_t bytes;
  uint32_t kind;
};

// The first word of each record that was sent, by its offset.
std::map<uint64_t, uint64_t> records_of(const std::vector<std::byte>& message) {
  std::map<uint64_t, uint64_t> records;
  for (size_t at = 0; at < message.size();) {
    Record record{};
    uint64_t value = 0;
    if (message.size() - at < sizeof(record) + sizeof(value)) {
      ADD_FAILURE() << "a record has no end";
      break;
    }
    std::memcpy(&record, message.data() + at, sizeof(record));
    at += sizeof(record);
    std::memcpy(&value, message.data() + at, sizeof(value));
    at += record.bytes;
    if (record.offset >= kPlace) records.emplace(record.offset, value);
  }
  return records;
}

TEST(LinkWithoutMemory, ARecordIsQueuedForAllRanksOrNone) {
  constexpr uint64_t kStores = 40, kApart = 64;
  for_each_allocation([&](int64_t number) {
    SCOPED_TRACE(number);
    Requests transport;
    Link link(transport.table(), 0, 3, {});
    const std::shared_ptr<Window> window = std::move(Window::create(1 << 20)).value();
    ASSERT_TRUE(window->reserve(kPlace, kStores * kApart).ok());
    link.attach(window, {0, 1, 2});
    (void)link.pump();
    const std::array ranks = {0, 1, 2};
    std::map<uint64_t, uint64_t> expected;
    for (uint64_t i = 0; i < kStores; ++i) expected.emplace(kPlace + i * kApart, i + 1);
    {
      const FailingAllocation failing(number);
      for (uint64_t i = 0; i < kStores; ++i) {
        const uint64_t offset = kPlace + i * kApart, value = i + 1;
        std::memcpy(window->writable(offset), &value, sizeof(value));
        try {
          if (i % 3 == 0) {
            link.store_word(ranks, offset, value);
          } else {
            link.store(ranks, offset, 8 * (i % 5 + 1));
          }
        } catch (const std::bad_alloc&) {
          expected.erase(offset);
        }
      }
    }
    (void)link.pump();
    EXPECT_EQ(records_of(transport.control[1]), expected);
    EXPECT_EQ(records_of(transport.control[2]), expected);
    link.close(0);
  });
}

TEST(LinkWithoutMemory, EachMessageIsStartedOnceAndEnds) {
  for_each_allocation([](int64_t number) {
    SCOPED_TRACE(number);
    Requests transport;
    {
      Link link(transport.table(), 0, 2, {});
      const std::shared_ptr<Window> window = std::move(Window::create(1 << 20)).value();
      link.attach(window, {0, 1});
      const std::array ranks = {1};
      std::vector<std::byte> data(4096);
      const auto batch = std::make_shared<Batch>(2);
      {
        const FailingAllocation failing(number);
        retry_without_memory([&] { link.store_word(ranks, kPlace, 7); });
        for (uint64_t call = 1; call <= 3; ++call) {
          const uint64_t tag = tag_of(0, call, 0);
          retry_without_memory([&] { link.send(batch, 1, tag, data.data(), data.size()); });
          retry_without_memory([&] { link.receive(batch, 1, tag, data.data(), data.size()); });
        }
        retry_without_memory([&] { (void)link.pump(); });
      }
      EXPECT_FALSE(batch->done());
      EXPECT_FALSE(batch->arrived(1));
      EXPECT_EQ(transport.messages.size(), 6u);
      for (const auto& [message, count] : transport.messages) EXPECT_EQ(count, 1);
      const std::map<uint64_t, uint64_t> word = {{kPlace, 7}};
      EXPECT_EQ(records_of(transport.control[1]), word);
      transport.end_all();
      (void)link.pump();
      EXPECT_TRUE(batch->done());
      EXPECT_TRUE(batch->arrived(1));
      EXPECT_EQ(transport.under_way.size(), 1u) << "the receive of a control message";
      link.close(0);
    }
    EXPECT_TRUE(transport.under_way.empty()) << "the transport has memory of a link that is gone";
  });
}

TEST(LinkWithoutMemory, EndsWhateverFails) {
  for_each_allocation([](int64_t number) {
    SCOPED_TRACE(number);
    Requests transport;
    {
      Link link(transport.table(), 0, 2, {});
      std::vector<std::byte> data(4096);
      const auto batch = std::make_shared<Batch>(2);
      link.send(batch, 1, tag_of(0, 1, 0), data.data(), data.size());
      const FailingAllocation failing(number);
      EXPECT_NO_THROW(link.close(kNanosPerMilli / 10));
    }
    EXPECT_EQ(transport.closed, 1);
    EXPECT_TRUE(transport.under_way.empty());
  });
}

TEST(LinkWithoutMemory, AnExceptionLeavesTheTransportNoRequest) {
  Requests transport;
  {
    Link link(transport.table(), 0, 2, {});
    (void)link.pump();
    EXPECT_FALSE(transport.under_way.empty());
  }
  EXPECT_TRUE(transport.under_way.empty());
}

// Ranks make the same allocations without messages: a failure on one must not change its next
// allocation.
TEST(WindowRegionsWithoutMemory, AFailureChangesNothing) {
  for_each_allocation([](int64_t number) {
    SCOPED_TRACE(number);
    WindowRegions failing_rank(kPage, 64 * kPage), peer(kPage, 64 * kPage);
    const auto allocate = [&](uint64_t pages) {
      uint64_t own = 0;
      retry_without_memory([&] { own = *failing_rank.allocate(pages * kPage, "a unit", 0); });
      const OwnMemory memory;
      EXPECT_EQ(own, *peer.allocate(pages * kPage, "a unit", 0));
      return own;
    };
    const auto release = [&](uint64_t offset, uint64_t pages) {
      retry_without_memory([&] { failing_rank.free(offset, pages * kPage, 0); });
      const OwnMemory memory;
      peer.free(offset, pages * kPage, 0);
    };
    const auto recycle = [&] {
      retry_without_memory([&] { failing_rank.recycle(0); });
      const OwnMemory memory;
      peer.recycle(0);
    };
    const FailingAllocation failing(number);
    uint64_t places[6];
    for (uint64_t& place : places) place = allocate(4);
    for (const int i : {3, 0, 2, 5}) release(places[i], 4);
    recycle();
    (void)allocate(1);  // a part of a range
    (void)allocate(8);  // of two ranges that are one now
    release(places[4], 4);
    release(places[1], 4);
    recycle();
    for (int i = 0; i < 10; ++i) (void)allocate(2);
  });
}

}  // namespace
}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
#include "transport/link.h"

#include <gtest/gtest.h>

#include <array>
#include <set>

namespace meron {
namespace {

// A transport whose sends take for ever.
struct Slow {
  std::set<uint64_t> under_way;
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
  table.test = [](void*, uint64_t, uint64_t*) { return meron_status{MERON_IN_PROGRESS}; };
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

}  // namespace
}  // namespace meron

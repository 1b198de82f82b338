// SPDX-License-Identifier: Apache-2.0
#include "base/handles.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>
#include <vector>

namespace meron {
namespace {

std::shared_ptr<Object> make(Kind kind) {
  return std::make_shared<Object>(kind, nullptr);
}

TEST(HandlesTest, FindsWhatWasInserted) {
  HandleTable& table = HandleTable::instance();
  const auto object = make(Kind::unit);
  const uint64_t id = *table.insert(object);
  EXPECT_EQ(object, *table.find(id, Kind::unit));
  EXPECT_EQ(object, *table.erase(id, Kind::unit));
}

TEST(HandlesTest, SaysWhatIsWrongWithAnId) {
  HandleTable& table = HandleTable::instance();
  const uint64_t id = *table.insert(make(Kind::unit));
  EXPECT_EQ(MERON_E_HANDLE, table.find(0, Kind::unit).error().code());
  EXPECT_EQ(MERON_E_HANDLE, table.find(~uint64_t{0}, Kind::unit).error().code());
  const auto wrong = table.find(id, Kind::param);
  EXPECT_EQ(MERON_E_HANDLE, wrong.error().code());
  EXPECT_NE(std::string::npos, wrong.error().info().what.find("is a unit where a param is needed"));
  ASSERT_TRUE(table.erase(id, Kind::unit).ok());
  EXPECT_EQ(MERON_E_STALE, table.find(id, Kind::unit).error().code());
  EXPECT_EQ(MERON_E_STALE, table.erase(id, Kind::unit).error().code());
}

TEST(HandlesTest, AnIdIsNeverHandedOutAgain) {
  HandleTable& table = HandleTable::instance();
  std::set<uint64_t> seen;
  for (int i = 0; i < 20'000; ++i) {
    const uint64_t id = *table.insert(make(Kind::future));
    EXPECT_TRUE(seen.insert(id).second);
    ASSERT_TRUE(table.erase(id, Kind::future).ok());
  }
  for (const uint64_t id : seen) {
    ASSERT_EQ(MERON_E_STALE, table.find(id, Kind::future).error().code());
  }
}

TEST(HandlesTest, ThreadsFindAndEraseWithoutTearing) {
  HandleTable& table = HandleTable::instance();
  std::vector<uint64_t> ids;
  for (int i = 0; i < 4000; ++i) ids.push_back(*table.insert(make(Kind::gather)));
  std::atomic<int> erased{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (const uint64_t id : ids) {
        const auto found = table.find(id, Kind::gather);
        EXPECT_TRUE(!found.ok() || (*found)->kind == Kind::gather);
        if (table.erase(id, Kind::gather).ok()) ++erased;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(4000, erased.load());
}

}  // namespace
}  // namespace meron

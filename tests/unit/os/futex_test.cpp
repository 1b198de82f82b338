// SPDX-License-Identifier: Apache-2.0
#include "os/futex.h"

#include <gtest/gtest.h>
#include <sys/time.h>

#include <new>

#include "base/clock.h"
#include "os/mapping.h"
#include "os/memory_file.h"
#include "tests/unit/os/child_process.h"

namespace meron {
namespace {

using test::Child;

constexpr int64_t kLong = 10 * kNanosPerSecond;

// A word in memory that forked children share.
class Futex : public testing::Test {
 protected:
  void SetUp() override {
    auto file = MemoryFile::create("futex_test", 4096);
    ASSERT_TRUE(file.ok());
    file_ = std::move(*file);
    auto mapping = Mapping::map_file(file_.fd(), 4096, Access::read_write);
    ASSERT_TRUE(mapping.ok());
    mapping_ = std::move(*mapping);
    ASSERT_TRUE(mapping_.populate(0, 4096).ok());
    word_ = new (mapping_.data()) std::atomic<uint32_t>(0);
  }

  MemoryFile file_;
  Mapping mapping_;
  std::atomic<uint32_t>* word_ = nullptr;
};

TEST_F(Futex, ReturnsAtOnceWhenTheWordDiffers) {
  EXPECT_EQ(futex_wait(word_, 1, kLong), WakeReason::changed);
}

TEST_F(Futex, TimesOut) {
  const int64_t begin = now_ns();
  EXPECT_EQ(futex_wait(word_, 0, 10 * kNanosPerMilli), WakeReason::timeout);
  EXPECT_GE(now_ns() - begin, 10 * kNanosPerMilli);
  EXPECT_EQ(futex_wait(word_, 0, 0), WakeReason::timeout);
  EXPECT_EQ(futex_wait(word_, 0, -5), WakeReason::timeout);
}

TEST_F(Futex, WakesOtherProcessesThroughAnyMapping) {
  // Each child maps the file for itself, so the word has another address there; the second only
  // has a read-only view.
  const auto wait_for_change = [this](Access access) {
    auto mapping = Mapping::map_file(file_.fd(), 4096, access);
    CHILD_EXPECT(mapping.ok());
    const auto* word = reinterpret_cast<const std::atomic<uint32_t>*>(mapping->data());
    while (word->load() == 0) {
      CHILD_EXPECT(futex_wait(word, 0, kLong) != WakeReason::timeout);
    }
    return 0;
  };
  Child writer([&] { return wait_for_change(Access::read_write); });
  Child reader([&] { return wait_for_change(Access::read); });
  // Wake without a change until both sleep: sleepers look again and go back.
  const Deadline deadline = Deadline::after(kLong);
  while (futex_wake(word_, kWakeAll) < 2) ASSERT_FALSE(deadline.passed());
  word_->store(1);
  futex_wake(word_, kWakeAll);
  EXPECT_EQ(writer.wait(), 0);
  EXPECT_EQ(reader.wait(), 0);
}

TEST_F(Futex, TellsThatASignalCame) {
  struct sigaction action {};
  struct sigaction saved {};
  action.sa_handler = [](int) {};
  ASSERT_EQ(::sigaction(SIGALRM, &action, &saved), 0);
  const itimerval every_5_ms{.it_interval = {0, 5000}, .it_value = {0, 5000}};
  ASSERT_EQ(::setitimer(ITIMER_REAL, &every_5_ms, nullptr), 0);
  EXPECT_EQ(futex_wait(word_, 0, kLong), WakeReason::interrupted);
  const itimerval off{};
  ::setitimer(ITIMER_REAL, &off, nullptr);
  ::sigaction(SIGALRM, &saved, nullptr);
}

}  // namespace
}  // namespace meron

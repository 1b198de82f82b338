// SPDX-License-Identifier: Apache-2.0
// The descriptor of a context: it becomes readable when a future may have advanced.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <thread>

#include "tests/capi/contract/two_ranks.h"

namespace meron::test {
namespace {

constexpr int kLong = 20'000;  // milliseconds: longer than anything here takes

bool readable(int fd, int timeout_ms) {
  pollfd asked = {fd, POLLIN, 0};
  return poll(&asked, 1, timeout_ms) == 1 && (asked.revents & POLLIN) != 0;
}

int descriptor_of(const Session& session) {
  int32_t fd = -1;
  MUST(meron_context_event_fd, &fd, session.context);
  return fd;
}

// Acts as an event loop until the future has ended, and returns its status.
meron_status run_loop(const Session& session, int fd, meron_future future) {
  meron_status status = meron_future_poll(future, nullptr);
  while (status == MERON_IN_PROGRESS) {
    if (!readable(fd, kLong)) return MERON_IN_PROGRESS;
    (void)meron_context_progress(session.context, nullptr);
    status = meron_future_poll(future, nullptr);
  }
  return status;
}

using Events = TwoRanks;

TEST_F(Events, ALoopSeesEachBarrierThatAPeerJoins) {
  Session& session = start([this](Session& other) {
    for (int i = 0; i < 200; ++i) {
      if (i % 20 == 0) sleep_ns(5 * kMilli);
      other.barrier();
    }
  });
  const int fd = descriptor_of(session);
  EXPECT_EQ(fd, descriptor_of(session)) << "the same at each call";
  for (int i = 0; i < 200; ++i) {
    meron_future barrier{};
    MUST(meron_barrier_begin, &barrier, session.world);
    ASSERT_EQ(MERON_OK, run_loop(session, fd, barrier)) << "barrier " << i;
    MUST(meron_future_release, barrier);
  }
  session.close();
}

// The time from the peer's call to the sign is far below the period of signs.
TEST_F(Events, ASignComesSoonAfterThePeersCall) {
  std::atomic<int64_t> joined{0};
  Session& session = start([&](Session& other) {
    while (!go) sleep_ns(kMilli / 10);
    sleep_ns(3 * kMilli);
    joined = now_ns();
    other.barrier();
  });
  const int fd = descriptor_of(session);
  meron_future barrier{};
  MUST(meron_barrier_begin, &barrier, session.world);
  go = true;
  ASSERT_EQ(MERON_OK, run_loop(session, fd, barrier));
  EXPECT_LT(now_ns() - joined, kSecond);
  MUST(meron_future_release, barrier);
  session.close();
}

TEST_F(Events, NothingIsReadableWhileNothingIsPending) {
  Session& session = start([](Session& other) { other.barrier(); });
  const int fd = descriptor_of(session);
  session.barrier();
  sleep_ns(100 * kMilli);  // the last sign
  MUST(meron_context_progress, session.context);
  EXPECT_FALSE(readable(fd, 200));
  uint64_t count = 0;
  EXPECT_EQ(-1, read(fd, &count, sizeof(count)));
  EXPECT_EQ(EAGAIN, errno);
  session.close();
}

TEST_F(Events, ReadingItClearsItToo) {
  Session& session = start([this](Session& other) {
    while (!go) sleep_ns(kMilli);
    other.barrier();
  });
  const int fd = descriptor_of(session);
  meron_future barrier{};
  MUST(meron_barrier_begin, &barrier, session.world);
  ASSERT_TRUE(readable(fd, kLong));
  uint64_t count = 0;
  EXPECT_EQ(ssize_t{sizeof(count)}, read(fd, &count, sizeof(count)));
  EXPECT_GT(count, 0u);
  go = true;
  meron_status status = MERON_IN_PROGRESS;
  while (status == MERON_IN_PROGRESS) {
    ASSERT_TRUE(readable(fd, kLong));
    ASSERT_EQ(ssize_t{sizeof(count)}, read(fd, &count, sizeof(count)));
    status = meron_future_poll(barrier, nullptr);
  }
  EXPECT_EQ(MERON_OK, status);
  MUST(meron_future_release, barrier);
  session.close();
}

TEST_F(Events, ALoopEndsAtTheDeadlineOfASilentPeer) {
  open.timeout_ns = 300 * kMilli;
  Session& session = start([](Session&) {});
  const int fd = descriptor_of(session);
  meron_future barrier{};
  MUST(meron_barrier_begin, &barrier, session.world);
  EXPECT_EQ(MERON_E_TIMEOUT, run_loop(session, fd, barrier));
  (void)meron_context_close(session.context, nullptr);
}

TEST_F(Events, ALoopSeesAnAbort) {
  Session& session = start([this](Session& other) {
    while (!go) sleep_ns(kMilli);
    MUST(meron_group_abort, other.world, "enough");
  });
  const int fd = descriptor_of(session);
  meron_future barrier{};
  MUST(meron_barrier_begin, &barrier, session.world);
  go = true;
  EXPECT_EQ(MERON_E_ABORTED, run_loop(session, fd, barrier));
  (void)meron_context_close(session.context, nullptr);
}

TEST_F(Events, TheDescriptorMayBeAskedForWhileAnOperationIsPending) {
  Session& session = start([](Session& other) {
    sleep_ns(30 * kMilli);
    other.barrier();
  });
  meron_future barrier{};
  MUST(meron_barrier_begin, &barrier, session.world);
  EXPECT_EQ(MERON_OK, run_loop(session, descriptor_of(session), barrier));
  session.close();
}

Open alone() {
  Open open;
  open.transport = "self";
  open.ranks = 1;
  return open;
}

TEST(EventDescriptor, ALoopSeesTheEndOfASave) {
  std::string folder = (std::filesystem::temp_directory_path() / "meron-events-XXXXXX").string();
  ASSERT_NE(nullptr, mkdtemp(folder.data()));
  Session session(alone(), 0);
  session.build();
  const int fd = descriptor_of(session);
  meron_future save{};
  MUST(meron_checkpoint_save_begin, &save, session.context, folder.c_str(), "one", nullptr);
  EXPECT_EQ(MERON_OK, run_loop(session, fd, save));
  session.close();
  std::filesystem::remove_all(folder);
}

TEST(EventDescriptor, ALoopSeesAGatherToADevice) {
  Open open = alone();
  open.adjust = [](int, meron_context_options& options) { options.device = "emulated"; };
  Session session(open, 0);
  session.build(1);
  const int fd = descriptor_of(session);
  meron_future gather{};
  MUST(meron_gather_begin, &gather, session.units.data(), 1, nullptr);
  EXPECT_EQ(MERON_OK, run_loop(session, fd, gather));
  MUST(meron_future_release, gather);
  session.close();
}

// The call of the gather is over before its copies are. A poll then begins to wait for these.
TEST(EventDescriptor, ALoopSeesCopiesThatEndAfterTheGathersCall) {
  ASSERT_EQ(0, setenv("MERON_EMULATED_DEVICE", "delay=100000", 1));
  Open open = alone();
  open.adjust = [](int, meron_context_options& options) { options.device = "emulated"; };
  Session session(open, 0);
  ASSERT_EQ(0, unsetenv("MERON_EMULATED_DEVICE"));
  session.build(1);
  const int fd = descriptor_of(session);
  meron_future gather{};
  MUST(meron_gather_begin, &gather, session.units.data(), 1, nullptr);
  MUST(meron_context_progress, session.context);
  sleep_ns(30 * kMilli);  // the thread of the descriptor finds nothing under way
  EXPECT_EQ(MERON_OK, run_loop(session, fd, gather));
  MUST(meron_future_release, gather);
  session.close();
}

TEST(EventDescriptor, IsClosedWithItsContext) {
  auto session = std::make_unique<Session>(alone(), 0);
  const int fd = descriptor_of(*session);
  EXPECT_EQ(FD_CLOEXEC, fcntl(fd, F_GETFD));
  EXPECT_NE(0, fcntl(fd, F_GETFL) & O_NONBLOCK);
  const int watched = dup(fd);  // what an epoll keeps
  session->close();
  EXPECT_EQ(-1, fcntl(fd, F_GETFD));
  EXPECT_EQ(EBADF, errno);
  EXPECT_TRUE(readable(watched, 0)) << "a loop that watches it wakes";
  close(watched);
  int32_t none = -1;
  EXPECT_EQ(MERON_E_STALE, meron_context_event_fd(&none, session->context, nullptr));
  EXPECT_EQ(-1, none);
}

TEST(EventDescriptor, IsForTheProcessThatOpenedTheContext) {
  Session session(alone(), 0);
  (void)descriptor_of(session);
  const pid_t child = fork();
  if (child == 0) {
    int32_t fd = -1;
    _exit(meron_context_event_fd(&fd, session.context, nullptr) == MERON_E_FORKED ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(child, waitpid(child, &status, 0));
  EXPECT_EQ(0, status);
  session.close();
}

}  // namespace
}  // namespace meron::test

// SPDX-License-Identifier: Apache-2.0
#include "os/io_ring.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "child_process.h"
#include "os/fd.h"
#include "os/host.h"

namespace meron {
namespace {

class IoRingTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!io_uring_available().available) GTEST_SKIP() << io_uring_available().reason;
    auto made = IoRing::create(4);
    if (!made.ok()) GTEST_SKIP() << made.error().info().what;
    ring_ = std::move(made).value();
    file_.reset(::memfd_create("io_ring_test", MFD_CLOEXEC));
  }

  // Submits and gives the one result there is.
  int32_t result() {
    EXPECT_TRUE(ring_->submit_and_wait(kNanosPerSecond).ok());
    std::array<IoRing::Completion, 4> ended{};
    EXPECT_EQ(ring_->reap(ended), 1u);
    EXPECT_EQ(ended[0].tag, 77u);
    return ended[0].result;
  }

  std::unique_ptr<IoRing> ring_;
  UniqueFd file_;
};

TEST_F(IoRingTest, MovesBytesRegisteredOrNot) {
  std::vector<std::byte> from(8192, std::byte{3}), to(8192);
  const uint32_t file = ring_->add_file(file_.get());
  EXPECT_EQ(file != IoRing::kNone, ring_->text().find("files") != std::string::npos);
  for (const uint32_t file_slot : {IoRing::kNone, file}) {
    for (const bool registered : {false, true}) {
      const auto slot_for = [&](std::vector<std::byte>& memory) {
        if (!registered || !ring_->takes_buffers()) return IoRing::kNone;
        const auto slot = ring_->add_buffer(memory.data(), memory.size());
        EXPECT_TRUE(slot.ok());
        return *slot;
      };
      const uint32_t from_slot = slot_for(from), to_slot = slot_for(to);
      EXPECT_TRUE(ring_->prepare({.write = true,
                                  .fd = file_.get(),
                                  .file_slot = file_slot,
                                  .buffer_slot = from_slot,
                                  .offset = 100,
                                  .data = from.data() + 1,
                                  .bytes = 8000,
                                  .tag = 77}));
      EXPECT_EQ(result(), 8000);
      EXPECT_TRUE(ring_->prepare({.write = false,
                                  .fd = file_.get(),
                                  .file_slot = file_slot,
                                  .buffer_slot = to_slot,
                                  .offset = 100,
                                  .data = to.data() + 5,
                                  .bytes = 8187,
                                  .tag = 77}));
      EXPECT_EQ(result(), 8000);
      EXPECT_EQ(to[5], std::byte{3});
      EXPECT_EQ(to[4], std::byte{0});
      if (from_slot != IoRing::kNone) ring_->remove_buffer(from_slot);
      if (to_slot != IoRing::kNone) ring_->remove_buffer(to_slot);
      std::fill(to.begin(), to.end(), std::byte{0});
    }
  }
  if (file != IoRing::kNone) ring_->remove_file(file);
}

TEST_F(IoRingTest, TellsErrors) {
  std::byte one{};
  EXPECT_TRUE(ring_->prepare({.fd = -1, .data = &one, .bytes = 1, .tag = 77}));
  EXPECT_EQ(result(), -EBADF);
  EXPECT_TRUE(
      ring_->prepare({.write = true, .fd = file_.get(), .data = nullptr, .bytes = 1, .tag = 77}));
  EXPECT_EQ(result(), -EFAULT);
}

TEST_F(IoRingTest, WaitsUntilWokenOrTheBound) {
  int64_t begin = now_ns();
  EXPECT_TRUE(ring_->submit_and_wait(20 * kNanosPerMilli).ok());
  EXPECT_GE(now_ns() - begin, 19 * kNanosPerMilli);
  std::array<IoRing::Completion, 4> ended{};
  for (int round = 0; round < 20; ++round) {
    std::thread waker([&] { ring_->wake(); });
    begin = now_ns();
    EXPECT_TRUE(ring_->submit_and_wait(10 * kNanosPerSecond).ok());
    EXPECT_LT(now_ns() - begin, 5 * kNanosPerSecond);
    EXPECT_EQ(ring_->reap(ended), 0u);
    waker.join();
  }
}

TEST_F(IoRingTest, TakesDepthRequestsAtATime) {
  std::vector<std::byte> bytes(4);
  for (uint32_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(ring_->prepare(
        {.write = true, .fd = file_.get(), .offset = i, .data = &bytes[i], .bytes = 1, .tag = i}));
  }
  std::array<IoRing::Completion, 8> ended{};
  size_t count = 0;
  while (count < 4) {
    ASSERT_TRUE(ring_->submit_and_wait(kNanosPerSecond).ok());
    count += ring_->reap(std::span(ended).subspan(count));
  }
  EXPECT_EQ(count, 4u);
}

TEST_F(IoRingTest, ItsDescriptorsAreCloseOnExec) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (target.find("io_uring") == std::string::npos && target.find("eventfd") == std::string::npos)
      continue;
    EXPECT_NE(::fcntl(std::stoi(entry.path().filename()), F_GETFD) & FD_CLOEXEC, 0) << target;
  }
}

TEST_F(IoRingTest, AHostThatForbidsItIsTold) {
  for (const long call : {SYS_io_uring_setup, SYS_io_uring_enter}) {
    EXPECT_EQ(test::run_in_child([&] {
                CHILD_EXPECT(test::deny_syscall(call, EPERM));
                const auto refused = IoRing::create(4);
                CHILD_EXPECT(!refused.ok() && refused.error().code() == MERON_E_UNSUPPORTED);
                CHILD_EXPECT(refused.error().info().what.find("EPERM") != std::string::npos);
                return 0;
              }),
              0);
  }
  EXPECT_EQ(IoRing::create(0).error().code(), MERON_E_ARGUMENT);
}

}  // namespace
}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cstring>
#include <fstream>
#include <thread>

#include "base/clock.h"
#include "disk.h"
#include "io/file_io.h"

namespace meron {
namespace {

using test::Bytes;
using test::text_of;
using ::testing::HasSubstr;

constexpr int64_t kMinute = 60 * kNanosPerSecond;

class FileIoTest : public test::OnDisk {
 protected:
  std::shared_ptr<FileIo> open(IoOptions options = {}, int64_t timeout_ns = kMinute) const {
    options.backend = GetParam();
    auto made = FileIo::open(options, timeout_ns);
    EXPECT_TRUE(made.ok()) << made.error().info().what;
    return *made;
  }
  std::string path(const std::string& name) const { return directory_.path() + "/" + name; }
  static uint64_t size_of(const std::string& path) { return std::filesystem::file_size(path); }

  static Status write(FileIo& io, const std::string& path, uint64_t offset, const std::byte* data,
                      uint64_t bytes) {
    MERON_ASSIGN(const auto request, io.write(path, offset, data, bytes));
    return ended(io.wait(request, -1));
  }
  static Status read(FileIo& io, const std::string& path, uint64_t offset, std::byte* data,
                     uint64_t bytes) {
    MERON_ASSIGN(const auto request, io.read(path, offset, data, bytes));
    return ended(io.wait(request, -1));
  }
  static Status ended(Result<bool> waited) {
    MERON_ASSIGN(const bool done, std::move(waited));
    EXPECT_TRUE(done);
    return Ok{};
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, FileIoTest,
                         testing::Values(test::Backend::uring, test::Backend::threads),
                         test::name_of);

// Any offset, length and address, in memory of the caller's and in pinned memory, against a model;
// and other programs see the same bytes.
TEST_P(FileIoTest, ReadsWhatItWroteWhereverItLies) {
  std::mt19937_64 random(11);
  constexpr uint64_t kSize = 2 << 20;
  const auto io = open({.block = 65536, .depth = 8, .threads = 2});
  const auto pinned = io->allocate(kSize + 8192);
  ASSERT_TRUE(pinned.ok());
  Bytes model(kSize), own(kSize + 8192);
  model.draw(random);
  ASSERT_TRUE(write(*io, path("f"), 0, model.data(), kSize).ok());
  for (int round = 0; round < 80; ++round) {
    std::byte* const memory = round % 2 == 0 ? own.data() : (*pinned)->data();
    const uint64_t grain = std::array{1, 512, 4096}[random() % 3];
    const uint64_t offset = random() % (kSize - 1) / grain * grain;
    const uint64_t bytes = std::min(kSize - offset, random() % (round % 3 == 0 ? 9000 : kSize));
    const uint64_t at = random() % 2 == 0 ? offset % 4096 : random() % 4096;
    model.draw(random, offset, bytes);
    std::memcpy(memory + at, model.data() + offset, bytes);
    EXPECT_OK(write(*io, path("f"), offset, memory + at, bytes));
    std::memset(memory, 0, kSize + 8192);
    EXPECT_OK(read(*io, path("f"), offset, memory + at, bytes));
    ASSERT_EQ(std::memcmp(memory + at, model.data() + offset, bytes), 0) << offset << " " << bytes;
  }
  EXPECT_EQ(size_of(path("f")), kSize);
  std::ifstream file(path("f"), std::ios::binary);
  std::vector<char> all(kSize);
  file.read(all.data(), static_cast<std::streamsize>(kSize));
  EXPECT_EQ(std::memcmp(all.data(), model.data(), kSize), 0);
}

TEST_P(FileIoTest, AWriteKeepsWhatItDoesNotTouch) {
  const auto io = open();
  Bytes ones(10'000), all(30'000);
  std::fill(ones.data(), ones.data() + 10'000, std::byte{1});
  EXPECT_OK(write(*io, path("f"), 20'000, ones.data(), 10'000));  // with a hole before it
  EXPECT_EQ(size_of(path("f")), 30'000u);
  EXPECT_OK(write(*io, path("f"), 5, ones.data(), 3));
  EXPECT_OK(read(*io, path("f"), 0, all.data(), 30'000));
  for (uint64_t i = 0; i < 30'000; ++i) {
    ASSERT_EQ(all.data()[i], std::byte{(i >= 5 && i < 8) || i >= 20'000}) << i;
  }
  // Nothing at all is a file too.
  EXPECT_OK(write(*io, path("empty"), 0, nullptr, 0));
  EXPECT_EQ(size_of(path("empty")), 0u);
  EXPECT_OK(read(*io, path("empty"), 0, nullptr, 0));
}

TEST_P(FileIoTest, ErrorsNameWhatIsWrong) {
  const auto io = open();
  Bytes bytes(4096);
  const Status none = read(*io, path("none"), 0, bytes.data(), 1);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code(), MERON_E_NOT_FOUND);
  EXPECT_EQ(none.error().info().subject, path("none"));

  EXPECT_OK(write(*io, path("f"), 0, bytes.data(), 1000));
  for (const auto& [offset, count, found] :
       {std::array<uint64_t, 3>{990, 20, 10}, {0, 1001, 1000}, {5000, 1, 0}}) {
    const Status beyond = read(*io, path("f"), offset, bytes.data(), count);
    ASSERT_FALSE(beyond.ok());
    EXPECT_EQ(beyond.error().code(), MERON_E_IO);
    EXPECT_EQ(beyond.error().info().subject, path("f"));
    EXPECT_EQ(beyond.error().info().what,
              fmt::format("{} bytes are wanted at offset {}, and {} are there: the file has 1000",
                          count, offset, found));
  }
  EXPECT_EQ(read(*io, path("f"), UINT64_MAX, bytes.data(), 2).error().code(), MERON_E_ARGUMENT);
  EXPECT_EQ(read(*io, directory_.path(), 0, bytes.data(), 1).error().code(), MERON_E_ARGUMENT);
  EXPECT_EQ(write(*io, directory_.path(), 0, bytes.data(), 1).error().code(), MERON_E_ARGUMENT);
  EXPECT_EQ(write(*io, path("no/f"), 0, bytes.data(), 1).error().code(), MERON_E_NOT_FOUND);
  EXPECT_EQ(read(*io, "/dev/null", 0, bytes.data(), 1).error().code(), MERON_E_ARGUMENT);
  // A pipe without a writer is not waited for.
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(read(*io, path("pipe"), 0, bytes.data(), 1).error().code(), MERON_E_ARGUMENT);
}

TEST_P(FileIoTest, ReadsWhatItMayNotWrite) {
  const auto io = open();
  Bytes bytes(8192), back(8192);
  std::mt19937_64 random(3);
  bytes.draw(random);
  EXPECT_OK(write(*io, path("f"), 0, bytes.data(), 8192));
  // Root may write anything: what counts is that a read asks for no more than it needs.
  const auto opened = DirectFile::open(path("f"), FileUse::read);
  ASSERT_TRUE(opened.ok());
  EXPECT_EQ(::fcntl(opened->buffered_fd(), F_GETFL) & O_ACCMODE, O_RDONLY);
  EXPECT_EQ(::fcntl(opened->fd(), F_GETFL) & (O_ACCMODE | O_NONBLOCK), O_RDONLY);
  ASSERT_EQ(::chmod(path("f").c_str(), 0444), 0);
  EXPECT_OK(read(*io, path("f"), 0, back.data(), 8192));
  EXPECT_EQ(std::memcmp(bytes.data(), back.data(), 8192), 0);
}

TEST_P(FileIoTest, AlignedTransfersGoPastThePageCache) {
  const auto io = open({.block = 1 << 20});
  const auto memory = io->allocate(4 << 20);
  ASSERT_TRUE(memory.ok());
  EXPECT_OK(write(*io, path("f"), 0, (*memory)->data(), 4 << 20));
  const auto info = io->info();
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->counters.bytes_written, 4u << 20);
  EXPECT_EQ(info->counters.requests, 4u);
  const std::string text = *io->describe();
  if (text.find("page cache") == std::string::npos) {
    EXPECT_EQ(info->counters.direct_requests, 4u);
  }
  EXPECT_EQ(info->memory_bytes, 4u << 20);
  EXPECT_EQ(info->requests, 1u);
  EXPECT_EQ(info->pending, 0u);
}

// Many at a time: a failure does not stop the others, and is reported once.
TEST_P(FileIoTest, WaitsForAllAndTellsOfAFailure) {
  if (!have_fault_points()) GTEST_SKIP() << "this build has no fault points";
  const auto io = open({.block = 4096, .depth = 4, .threads = 2});
  Bytes bytes(4096 * 8);
  std::fill(bytes.data(), bytes.data() + bytes.size(), std::byte{7});
  std::vector<std::shared_ptr<IoRequest>> requests;
  {
    const test::Faults faults("write:3:EIO,write:6:EIO");
    for (int i = 0; i < 8; ++i) {
      const auto begun = io->write(path(std::to_string(i)), 0, bytes.data() + i * 4096, 4096);
      ASSERT_TRUE(begun.ok());
      requests.push_back(*begun);
    }
    const auto waited = io->wait_all(-1);
    ASSERT_FALSE(waited.ok());
    EXPECT_EQ(waited.error().code(), MERON_E_IO);
    EXPECT_THAT(waited.error().info().what, HasSubstr("EIO"));
    EXPECT_THAT(waited.error().info().what, HasSubstr("and 1 more request failed"));
    EXPECT_THAT(waited.error().info().subject, HasSubstr(directory_.path()));
  }
  int failed = 0;
  for (int i = 0; i < 8; ++i) {
    const auto one = io->wait(requests[static_cast<size_t>(i)], 0);
    failed += one.ok() ? 0 : 1;
    std::byte byte{};
    if (one.ok()) {
      EXPECT_OK(read(*io, path(std::to_string(i)), 4095, &byte, 1));
      EXPECT_EQ(byte, std::byte{7});
    }
  }
  EXPECT_EQ(failed, 2);
  EXPECT_TRUE(*io->wait_all(-1));
  EXPECT_OK(io->close());
}

TEST_P(FileIoTest, CloseEndsWhatIsUnderWayAndTellsWhatNobodyWaitedFor) {
  Bytes bytes(8 << 20);
  std::fill(bytes.data(), bytes.data() + bytes.size(), std::byte{9});
  const auto io = open({.block = 65536});
  const auto request = io->write(path("f"), 0, bytes.data(), bytes.size());
  ASSERT_TRUE(request.ok());
  EXPECT_OK(io->close());
  EXPECT_OK(io->close());
  EXPECT_TRUE((*request)->done());
  EXPECT_TRUE(*io->wait(*request, 0));
  EXPECT_EQ(io->read(path("f"), 0, bytes.data(), 1).error().code(), MERON_E_CLOSED);
  EXPECT_EQ(io->allocate(1).error().code(), MERON_E_CLOSED);
  EXPECT_EQ(io->info().error().code(), MERON_E_CLOSED);
  EXPECT_EQ(size_of(path("f")), bytes.size());
  if (!have_fault_points()) return;
  const auto other = open();
  const test::Faults faults("write:*:EIO");
  ASSERT_TRUE(other->write(path("g"), 0, bytes.data(), 4096).ok());
  const Status closed = other->close();
  ASSERT_FALSE(closed.ok());
  EXPECT_EQ(closed.error().code(), MERON_E_IO);
  EXPECT_EQ(closed.error().info().subject, path("g"));
}

// A buffer that is released while a request is under way lives as long as the request.
TEST_P(FileIoTest, RequestsKeepPinnedMemory) {
  const auto io = open({.block = 65536});
  for (int round = 0; round < 20; ++round) {
    auto memory = io->allocate(1 << 20);
    ASSERT_TRUE(memory.ok());
    std::fill((*memory)->data(), (*memory)->data() + (1 << 20), std::byte{5});
    auto request = io->write(path("f"), 0, (*memory)->data(), 1 << 20);
    ASSERT_TRUE(request.ok());
    const std::weak_ptr<IoMemory> watched = *memory;
    *memory = nullptr;
    EXPECT_FALSE(watched.expired());
    if (round % 2 == 0) {
      EXPECT_TRUE(*io->wait(*request, -1));
    } else {
      *request = nullptr;
      EXPECT_TRUE(*io->wait_all(-1));
    }
    *request = nullptr;
    EXPECT_TRUE(watched.expired());
    Bytes back(1 << 20);
    EXPECT_OK(read(*io, path("f"), 0, back.data(), 1 << 20));
    EXPECT_EQ(back.data()[(1 << 20) - 1], std::byte{5});
  }
  EXPECT_EQ(io->info()->memory_bytes, 0u);
}

// Writes of several threads to one file, each of its own part, while it grows.
TEST_P(FileIoTest, SeveralThreadsWriteOneFile) {
  constexpr uint64_t kPart = 300'001;
  const auto io = open({.block = 65536, .depth = 16, .threads = 3});
  std::vector<std::thread> threads;
  for (uint64_t part = 0; part < 6; ++part) {
    threads.emplace_back([&, part] {
      const std::vector<std::byte> bytes(kPart, static_cast<std::byte>(part + 1));
      EXPECT_OK(write(*io, path("f"), part * kPart, bytes.data(), kPart));
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<std::byte> all(6 * kPart);
  EXPECT_OK(read(*io, path("f"), 0, all.data(), all.size()));
  for (uint64_t i = 0; i < all.size(); ++i) {
    ASSERT_EQ(all[i], static_cast<std::byte>(i / kPart + 1)) << i;
  }
}

// A page that is never supplied stands for a drive that does not answer.
class Stalled {
 public:
  Stalled() {
    fd_ = static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK));
    if (fd_ < 0) return;
    uffdio_api api{};
    api.api = UFFD_API;
    void* const page =
        ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uffdio_register range{};
    range.range.start = reinterpret_cast<uintptr_t>(page);
    range.range.len = 4096;
    range.mode = UFFDIO_REGISTER_MODE_MISSING;
    if (::ioctl(fd_, UFFDIO_API, &api) != 0 || ::ioctl(fd_, UFFDIO_REGISTER, &range) != 0) return;
    data_ = static_cast<std::byte*>(page);
  }
  ~Stalled() {
    if (fd_ >= 0) ::close(fd_);
    if (data_ != nullptr) ::munmap(data_, 4096);
  }
  Stalled(const Stalled&) = delete;
  Stalled& operator=(const Stalled&) = delete;

  std::byte* data() const { return data_; }
  void answer() const {
    uffdio_zeropage zero{};
    zero.range.start = reinterpret_cast<uintptr_t>(data_);
    zero.range.len = 4096;
    EXPECT_EQ(::ioctl(fd_, UFFDIO_ZEROPAGE, &zero), 0);
  }

 private:
  int fd_ = -1;
  std::byte* data_ = nullptr;
};

TEST_P(FileIoTest, NoWaitIsWithoutAnEnd) {
  if (GetParam() == test::Backend::uring) GTEST_SKIP() << "io_uring faults pages as it submits";
  const Stalled stalled;
  if (stalled.data() == nullptr) GTEST_SKIP() << "no userfaultfd here";
  const auto io =
      open({}, 2 * kNanosPerSecond);  // longer than a busy host keeps this thread waiting
  const auto request = io->write(path("f"), 0, stalled.data(), 4096);
  ASSERT_TRUE(request.ok());
  EXPECT_FALSE(*io->wait(*request, 0));
  EXPECT_FALSE(*io->wait_all(50 * kNanosPerMilli));
  const int64_t begin = now_ns();
  const auto late = io->wait(*request, -1);
  EXPECT_LT(now_ns() - begin, 30 * kNanosPerSecond);
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code(), MERON_E_TIMEOUT);
  EXPECT_EQ(late.error().info().subject, path("f"));
  EXPECT_EQ(io->wait_all(-1).error().code(), MERON_E_TIMEOUT);
  EXPECT_EQ(io->info()->pending, 1u);
  stalled.answer();
  while (!(*request)->done() && now_ns() - begin < kMinute) (void)io->wait(*request, -1);
  EXPECT_OK((*request)->status());
  EXPECT_OK(io->close());
  EXPECT_EQ(size_of(path("f")), 4096u);
}

// A drive that holds a thread for good does not hold the close.
TEST_P(FileIoTest, ACloseHasAnEnd) {
  if (GetParam() == test::Backend::uring) GTEST_SKIP() << "io_uring faults pages as it submits";
  const Stalled stalled;
  if (stalled.data() == nullptr) GTEST_SKIP() << "no userfaultfd here";
  const auto io = open({}, 100 * kNanosPerMilli);
  const auto request = io->write(path("f"), 0, stalled.data(), 4096);
  ASSERT_TRUE(request.ok());
  const int64_t begin = now_ns();
  const Status closed = io->close();
  EXPECT_LT(now_ns() - begin, 15 * kNanosPerSecond);
  ASSERT_FALSE(closed.ok());
  EXPECT_EQ(closed.error().code(), MERON_E_TIMEOUT);
  EXPECT_EQ(closed.error().info().subject, path("f"));
  EXPECT_EQ(io->wait(*request, -1).error().code(), MERON_E_TIMEOUT);
  stalled.answer();
  while (!(*request)->done() && now_ns() - begin < kMinute) (void)io->wait(*request, -1);
  EXPECT_TRUE((*request)->done());
}

// Calls of other threads while it is closed end well, or say that it is closed.
TEST_P(FileIoTest, IsClosedUnderOtherThreads) {
  for (int round = 0; round < 5; ++round) {
    const auto io = open({.block = 4096, .depth = 4, .threads = 2});
    Bytes seed(65536);
    EXPECT_OK(write(*io, path("f"), 0, seed.data(), 65536));
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&, thread] {
        Bytes own(65536);
        const auto expect = [](const auto& result) {
          EXPECT_TRUE(result.ok() || result.error().code() == MERON_E_CLOSED)
              << result.error().info().what;
          return result.ok();
        };
        for (bool open = true; open;) {
          const auto memory = io->allocate(8192);
          const auto request = thread % 2 == 0
                                   ? io->read(path("f"), 0, own.data(), 65536)
                                   : io->write(path(std::to_string(thread)), 0, own.data(), 65536);
          open = expect(request) && expect(memory) && expect(io->info()) && expect(io->describe());
          if (request.ok()) expect(io->wait(*request, thread < 2 ? -1 : 0));
          // Pending requests use this thread's memory.
          while (request.ok() && !(*request)->done()) std::this_thread::yield();
        }
      });
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10 + 10 * round));
    EXPECT_OK(io->close());
    for (std::thread& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
// Ranks that fail after others have joined: they live on, so nothing but their mark in the window
// keeps the others from waiting for them. Ranks are threads, which meet as processes do; a rank or
// rank 0 that is played sends and receives by hand.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "os/process.h"
#include "rendezvous/shm_messages.h"
#include "tests/unit/rendezvous/meeting.h"

namespace {

// Messages with descriptors that this thread may still send; below 0: any number.
thread_local int sends_left = -1;

}  // namespace

// In the place of the C library's, for all threads of this program.
extern "C" ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  if (message->msg_controllen > 0 && sends_left >= 0) {
    if (sends_left == 0) {
      errno = ETOOMANYREFS;
      return -1;
    }
    --sends_left;
  }
  return ::syscall(SYS_sendmsg, fd, message, flags);
}

namespace meron {
namespace {

using shm::Hello;
using shm::Welcome;

Deadline soon() {
  return Deadline::after_ms(10'000);
}

std::string socket_name(const std::string& job) {
  return "meron-" + std::to_string(effective_uid()) + "-" + job;
}

std::string fresh_job() {
  static int counter = 0;
  return "membership-" + std::to_string(process_id()) + "-" + std::to_string(++counter);
}

// A memory file that is not sealed, so that no peer maps it.
UniqueFd unsealed() {
  UniqueFd fd(::memfd_create("unsealed", MFD_CLOEXEC));
  EXPECT_EQ(0, ::ftruncate(fd.get(), 1 << 20));
  return fd;
}

// A window of `bytes` of address space. Only its head has memory.
MemoryFile make_window(uint64_t bytes, uint32_t ranks = 2) {
  MemoryFile file = MemoryFile::create("window", bytes).value();
  Mapping head = Mapping::map_file(file.fd(), 4096, Access::read_write).value();
  EXPECT_TRUE(head.populate(0, 4096).ok());
  auto* const header = reinterpret_cast<WindowHeader*>(head.data());
  header->magic = kWindowMagic;
  header->world_size = ranks;
  return file;
}

uint32_t left(std::byte* window, int rank) {
  auto* const ranks = reinterpret_cast<RankBlock*>(window + sizeof(WindowHeader));
  return ranks[rank].left.load();
}
uint32_t left(int window, int rank) {
  Mapping head = Mapping::map_file(window, 4096, Access::read_write).value();
  return left(head.data(), rank);
}

// Rank 0, played: up to the hello of rank 1.
struct PlayedServer {
  explicit PlayedServer(const std::string& job)
      : listener(listen_abstract(socket_name(job)).value()) {}
  void hear() {
    member = accept(listener.get(), soon()).value();
    Hello hello;
    EXPECT_TRUE(shm::receive(member.get(), hello, soon()).ok());
  }
  Status welcome(const MemoryFile& window) const {
    const int fd = window.fd();
    return shm::send(member.get(), Welcome{}, std::span(&fd, 1), soon());
  }
  UniqueFd listener, member;
};

TEST(MembershipTest, ARankThatCannotMapAPeersArenaLeaves) {
  const std::string job = fresh_job();
  std::vector<std::optional<Result<Joined>>> ended(2);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      ended[static_cast<size_t>(rank)].emplace(join_shm(meeting(rank, 3), job, {}));
    });
  }
  UniqueFd played = connect_abstract(socket_name(job), soon()).value();
  const UniqueFd arena = unsealed();
  const int fd = arena.get();
  Hello hello;
  hello.rank = 2;
  hello.world_size = 3;
  ASSERT_TRUE(shm::send(played.get(), hello, std::span(&fd, 1), soon()).ok());
  Welcome welcome;
  const UniqueFd window = shm::receive(played.get(), welcome, soon()).value();
  for (std::thread& rank : ranks) rank.join();
  for (int rank = 0; rank < 2; ++rank) {
    const auto& joined = *ended[static_cast<size_t>(rank)];
    ASSERT_FALSE(joined.ok());
    EXPECT_EQ(MERON_E_AUTH, joined.error().code());
    EXPECT_EQ(1u, left(window.get(), rank)) << "rank " << rank;
  }
  EXPECT_EQ(0u, left(window.get(), 2));
}

// Rank 0 has welcomed rank 1 when it cannot welcome rank 2; rank 3 learns why.
TEST(MembershipTest, RanksThatAreNotWelcomedHaveLeftForThoseThatAre) {
  constexpr int kRanks = 4;
  const std::string job = fresh_job();
  std::vector<std::optional<Result<Joined>>> ended(kRanks);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      if (rank == 0) sends_left = 1 + kRanks + 2;
      ended[static_cast<size_t>(rank)].emplace(join_shm(meeting(rank, kRanks), job, {}));
    });
  }
  for (std::thread& rank : ranks) rank.join();
  ASSERT_TRUE(ended[1]->ok()) << ended[1]->error().info().what;
  for (const int rank : {0, 3}) {
    ASSERT_FALSE(ended[static_cast<size_t>(rank)]->ok());
    const ErrorInfo& info = ended[static_cast<size_t>(rank)]->error().info();
    EXPECT_EQ(MERON_E_NO_MEMORY, info.code) << info.what;
    EXPECT_NE(std::string::npos, info.what.find("rank 2")) << info.what;
    EXPECT_EQ(2, info.peer);
  }
  ASSERT_FALSE(ended[2]->ok());
  EXPECT_EQ(MERON_E_PEER_CLOSED, ended[2]->error().code());
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(rank == 1 ? 0u : 1u, left((*ended[1])->window->writable(0), rank)) << "rank " << rank;
  }
}

TEST(MembershipTest, ARankThatCannotMapTheWindowLeaves) {
  const std::string job = fresh_job();
  PlayedServer server(job);
  const MemoryFile window = make_window(uint64_t{1} << 48);  // beyond any address space
  std::thread rank([&] {
    const auto joined = join_shm(meeting(1, 2), job, {});
    ASSERT_FALSE(joined.ok());
    EXPECT_EQ(MERON_E_NO_MEMORY, joined.error().code()) << joined.error().info().what;
  });
  server.hear();
  ASSERT_TRUE(server.welcome(window).ok());
  rank.join();
  EXPECT_EQ(1u, left(window.fd(), 1));
}

// The welcome arrives between the last look for it and the end of the rank's patience.
TEST(MembershipTest, ARankThatGivesUpAsItIsWelcomedLeaves) {
  const std::string job = fresh_job();
  PlayedServer server(job);
  const MemoryFile window = make_window(1 << 20);
  std::thread rank([&] {
    MeetingOptions options = meeting(1, 2);
    options.should_stop = [&] {
      if (!server.member.valid()) server.hear();
      EXPECT_TRUE(server.welcome(window).ok());
      return true;
    };
    const auto joined = join_shm(options, job, {});
    ASSERT_FALSE(joined.ok());
    EXPECT_EQ(MERON_E_CANCELLED, joined.error().code()) << joined.error().info().what;
  });
  rank.join();
  EXPECT_EQ(1u, left(window.fd(), 1));
  EXPECT_EQ(MERON_E_PEER_CLOSED, server.welcome(window).error().code());
}

TEST(MembershipTest, AWindowOfAnotherLayoutIsRefused) {
  const std::string job = fresh_job();
  PlayedServer server(job);
  const MemoryFile window = make_window(4096, 3);
  std::thread rank([&] {
    const auto joined = join_shm(meeting(1, 2), job, {});
    ASSERT_FALSE(joined.ok());
    EXPECT_EQ(MERON_E_VERSION, joined.error().code()) << joined.error().info().what;
  });
  server.hear();
  ASSERT_TRUE(server.welcome(window).ok());
  rank.join();
}

}  // namespace
}  // namespace meron

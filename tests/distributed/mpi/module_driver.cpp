// SPDX-License-Identifier: Apache-2.0
// One rank of the tests of libmeron_mpi.so: module_driver LIBRARY CASE. test_module.py starts them
// under mpirun, and says which end each case has.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <numeric>

#include "tests/distributed/mpi/module.h"

namespace meron::test {
namespace {

constexpr uint64_t kMiB = 1 << 20;

// Content of message `number` from rank `from` to rank `to`.
Bytes content(uint64_t bytes, int from, int to, uint64_t number) {
  Bytes content(bytes);
  uint64_t state = (static_cast<uint64_t>(from) << 40) + (static_cast<uint64_t>(to) << 20) + number;
  for (unsigned char& byte : content) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<unsigned char>(state >> 56);
  }
  return content;
}

// Each rank sends `count` messages of `bytes(i)` bytes with `tag(i)` to every other rank, and
// receives the same from it, started in the order `order`.
template <class Tag, class Size>
void exchange(World& world, const std::vector<uint64_t>& order, Tag tag, Size size) {
  struct Sent {
    uint64_t request;
    Bytes bytes;
  };
  struct Received {
    uint64_t request, number;
    int peer;
    Bytes bytes;
  };
  std::vector<Sent> sent;
  std::vector<Received> received;
  for (int peer = 0; peer < world.size(); ++peer) {
    if (peer == world.rank()) continue;
    for (uint64_t i = 0; i < order.size(); ++i) {
      sent.push_back({0, content(size(i), world.rank(), peer, i)});
      sent.back().request = world.send(peer, tag(i), sent.back().bytes);
    }
  }
  for (int peer = 0; peer < world.size(); ++peer) {
    if (peer == world.rank()) continue;
    for (const uint64_t i : order) {
      received.push_back({0, i, peer, Bytes(size(i) + 3)});
      Received& last = received.back();
      last.request = world.receive(peer, tag(i), last.bytes);
    }
  }
  for (Received& message : received) {
    EXPECT(world.wait(message.request) == size(message.number));
    message.bytes.resize(size(message.number));
    EXPECT(message.bytes ==
           content(size(message.number), message.peer, world.rank(), message.number));
  }
  for (const Sent& message : sent) EXPECT(world.wait(message.request) == message.bytes.size());
}

std::vector<uint64_t> counted(uint64_t count) {
  std::vector<uint64_t> order(count);
  std::iota(order.begin(), order.end(), uint64_t{0});
  return order;
}

void messages(const char* library) {
  World world(library);
  EXPECT(world.size() > 1);
  EXPECT(world.world().abi == MERON_MPI_MODULE_ABI);
  EXPECT(world.world().version == MERON_VERSION);
  EXPECT(world.world().any_thread == 1);
  EXPECT(std::strlen(world.world().library) > 5);
  EXPECT(std::strcmp(world.table().name, "mpi") == 0);

  // Receives are started in the reverse order of the sends, up to the largest tag.
  std::vector<uint64_t> backwards = counted(40);
  std::reverse(backwards.begin(), backwards.end());
  exchange(
      world, backwards, [](uint64_t i) { return MERON_MPI_TAG_END - 1 - i; },
      [](uint64_t i) { return i * i * 100; });
  // Messages of one tag keep their order, small and large ones mixed.
  exchange(
      world, counted(40), [](uint64_t) { return uint64_t{5}; },
      [](uint64_t i) { return i % 3 == 0 ? uint64_t{200'000} : 10 * i; });
  // Zero bytes.
  exchange(
      world, counted(3), [](uint64_t) { return uint64_t{6}; },
      [](uint64_t) { return uint64_t{0}; });
  world.meet(7);
}

// To the next rank, from the one before.
void large(const char* library) {
  World world(library);
  const int next = (world.rank() + 1) % world.size();
  const int before = (world.rank() + world.size() - 1) % world.size();
  const Bytes sent = content(64 * kMiB, world.rank(), next, 0);
  Bytes received(64 * kMiB);
  const uint64_t from = world.receive(before, 1, received);
  const uint64_t to = world.send(next, 1, sent);
  EXPECT(world.wait(from) == 64 * kMiB);
  EXPECT(received == content(64 * kMiB, before, world.rank(), 0));
  EXPECT(world.wait(to) == 64 * kMiB);
  world.meet(2);
}

void cancel(const char* library) {
  World world(library);
  const int peer = world.rank() ^ 1;
  // A receive that is cancelled leaves its memory alone, and takes nothing from a later one.
  Bytes cancelled(100, 0xaa), received(100);
  world.cancel(world.receive(peer, 3, cancelled));
  world.meet(4);
  const Bytes sent = content(100, world.rank(), peer, 0);
  const uint64_t from = world.receive(peer, 3, received);
  const uint64_t to = world.send(peer, 3, sent);
  EXPECT(world.wait(from) == 100);
  EXPECT(received == content(100, peer, world.rank(), 0));
  EXPECT(cancelled == Bytes(100, 0xaa));
  EXPECT(world.wait(to) == 100);
  // A send without a receiver is cancelled in bounded time, and later messages are intact.
  const Bytes unwanted(4 * kMiB);
  const auto begin = std::chrono::steady_clock::now();
  world.cancel(world.send(peer, 8, unwanted));
  EXPECT(std::chrono::steady_clock::now() - begin < std::chrono::seconds(2));
  exchange(
      world, counted(10), [](uint64_t) { return uint64_t{9}; },
      [](uint64_t i) { return i * 9000; });
  world.meet(4);
}

// A message that is longer than its receive is said to be one, on the rank that receives it.
void too_long(const char* library) {
  World world(library);
  const int peer = world.rank() ^ 1;
  const Bytes sent(100);
  Bytes received(50);
  const uint64_t from = world.receive(peer, 3, received);
  const uint64_t to = world.send(peer, 3, sent);
  uint64_t bytes = 0;
  meron_status status;
  while ((status = world.test(from, &bytes)) == MERON_IN_PROGRESS) world.pause();
  EXPECT(status == MERON_E_MISMATCH);
  EXPECT(world.wait(to) == 100);
  world.meet(4);
}

// The number of request slots is the maximum of pending messages at a time, not of all messages.
void reuse(const char* library) {
  World world(library);
  uint64_t most = 0;
  const int next = (world.rank() + 1) % world.size();
  const int before = (world.rank() + world.size() - 1) % world.size();
  for (int round = 0; round < 2000; ++round) {
    uint64_t out = 1, in = 0;
    const uint64_t from = world.receive(before, 1, &in, sizeof(in));
    const uint64_t to = world.send(next, 1, &out, sizeof(out));
    world.wait(from);
    world.wait(to);
    most = std::max({most, from, to});
  }
  EXPECT(most < 2);
  world.meet(2);
}

// Contexts do not receive each other's messages, one after the other and at the same time.
void worlds(const char* library) {
  for (int round = 0; round < 3; ++round) {
    World first(library), second(library);
    const int peer = first.rank() ^ 1;
    const uint64_t mine[] = {1, 2};
    uint64_t theirs[] = {0, 0};
    const uint64_t in_second = second.receive(peer, 1, &theirs[1], 8);
    const uint64_t in_first = first.receive(peer, 1, &theirs[0], 8);
    const uint64_t out_first = first.send(peer, 1, &mine[0], 8);
    const uint64_t out_second = second.send(peer, 1, &mine[1], 8);
    first.wait(in_first);
    second.wait(in_second);
    EXPECT(theirs[0] == 1 && theirs[1] == 2);
    first.wait(out_first);
    second.wait(out_second);
    // A message that this context leaves behind is not the next one's.
    uint64_t stale = 77;
    first.wait(first.send(peer, 5, &stale, 8));
    first.close();
    World third(library);
    uint64_t fresh = 78, received = 0;
    const uint64_t in = third.receive(peer, 5, &received, 8);
    third.wait(third.send(peer, 5, &fresh, 8));
    third.wait(in);
    EXPECT(received == 78);
    third.meet(6);
    second.meet(6);
  }
}

// Two contexts at a time, each used by a thread of its own.
void threads(const char* library) {
  World first(library), second(library);
  const auto use = [](World* world) {
    exchange(
        *world, counted(30), [](uint64_t i) { return i; }, [](uint64_t i) { return i * 3000; });
    world->meet(100);
  };
  std::thread other(use, &first);
  use(&second);
  other.join();
}

// Java and Julia live by their own handlers of faults.
void signals(const char* library) {
  struct sigaction before[32], after;
  for (int number = 1; number < 32; ++number) sigaction(number, nullptr, &before[number]);
  World world(library);
  for (const int number : {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGINT, SIGTERM, SIGCHLD}) {
    sigaction(number, nullptr, &after);
    EXPECT(after.sa_handler == before[number].sa_handler);
  }
  sigset_t mask;
  EXPECT(pthread_sigmask(SIG_SETMASK, nullptr, &mask) == 0);
  EXPECT(sigismember(&mask, SIGINT) == 0 && sigismember(&mask, SIGSEGV) == 0);
}

void abi(const char* library) {
  const meron_mpi_open_fn open = open_function(library);
  meron_mpi_world world;
  std::memset(static_cast<void*>(&world), 0x5a, sizeof(world));
  char why[16];
  std::memset(why, 0x5a, sizeof(why));
  EXPECT(open(MERON_MPI_MODULE_ABI + 1, &world, why, sizeof(why)) == MERON_E_VERSION);
  const auto* bytes = reinterpret_cast<const unsigned char*>(&world);
  EXPECT(std::all_of(bytes, bytes + sizeof(world), [](int byte) { return byte == 0x5a; }));
  EXPECT(std::strcmp(why, "libmeron_mpi.so") == 0);
  EXPECT(open(0, &world, nullptr, 0) == MERON_E_VERSION);
}

void alone(const char* library) {
  World world(library);
  EXPECT(world.rank() == 0 && world.size() == 1);
  World another(library);
  EXPECT(another.size() == 1);
}

// ---- Ends of jobs. The other ranks wait for rank 1, which does not arrive.

[[noreturn]] void wait_for_rank_1(World& world) {
  uint64_t word = 0, bytes = 0;
  const uint64_t request = world.receive(1, 1, &word, sizeof(word));
  while (world.test(request, &bytes) == MERON_IN_PROGRESS) world.pause();
  std::exit(5);
}

void killed(const char* library) {
  World world(library);
  world.meet(1);
  if (world.rank() == 1) std::raise(SIGKILL);
  wait_for_rank_1(world);
}

// The context is never closed, as when a trainer exits early.
void exits_with_error(const char* library) {
  auto* world = new World(library);
  world->meet(1);
  if (world->rank() == 1) std::exit(3);
  wait_for_rank_1(*world);
}

void closes_and_exits_with_error(const char* library) {
  World world(library);
  world.meet(1);
  world.close();
  if (world.rank() == 1) std::exit(3);
}

// An error of MPI concerns that peer only. It is reported once, and other peers stay reachable.
void mpi_fails(const char* library) {
  World world(library);
  world.meet(1);
  if (world.rank() == 1) {
    uint64_t request = 0;
    for (int i = 0; i < 2; ++i) {
      EXPECT(world.table().send(world.table().user, &request, world.size(), 1, nullptr, 0) ==
             MERON_E_PEER_DEAD);
    }
  }
  world.meet(1);
  world.close();
  if (world.rank() == 1) std::exit(3);
}

// The sender of a message stops half-way: the receive is cancelled, and nothing writes to its
// memory.
void stops_half_way(const char* library) {
  auto* world = new World(library);
  const int sender = world->size() - 1;
  pid_t process = getpid();
  Bytes data(64 * kMiB, world->rank() == sender ? 1 : 0);
  if (world->rank() == sender) {
    world->wait(world->send(0, 1, &process, sizeof(process)));
    world->wait(world->send(0, 2, data));
  } else if (world->rank() == 0) {
    world->wait(world->receive(sender, 1, &process, sizeof(process)));
    uint64_t bytes = 0;
    const uint64_t request = world->receive(sender, 2, data);
    while (data[kMiB] == 0) EXPECT(world->test(request, &bytes) == MERON_IN_PROGRESS);
    kill(process, SIGSTOP);
    const auto begin = std::chrono::steady_clock::now();
    world->cancel(request);
    EXPECT(std::chrono::steady_clock::now() - begin < std::chrono::seconds(2));
    EXPECT(data.back() == 0);
    const Bytes before = data;
    kill(process, SIGCONT);
    for (int i = 0; i < 1000; ++i) {
      world->pause();
      EXPECT(world->table().send(world->table().user, nullptr, 1, 1, nullptr, 0) < 0);
    }
    EXPECT(data == before);
    world->close();
    std::exit(3);
  }
  wait_for_rank_1(*world);
}

// Rank 1 never opens a context: no rank blocks in a call, and the job ends.
void stays_away(const char* library) {
  static World first(library);
  first.meet(1);
  if (first.rank() == 1) {
    std::this_thread::sleep_for(std::chrono::seconds(600));
    std::exit(6);
  }
  World second(library);
  uint64_t request = 0;
  for (int i = 0; i < 100; ++i) {
    EXPECT(second.table().send(second.table().user, &request, 1, 1, nullptr, 0) ==
           MERON_IN_PROGRESS);
    second.pause();
  }
  second.close();
  std::exit(4);
}

// A static object closes its context after the exit functions have run.
void closes_late(const char* library) {
  static World world(library);
  world.meet(1);
}

struct Case {
  const char* name;
  void (*run)(const char* library);
};
constexpr Case kCases[] = {
    {"messages", messages},
    {"large", large},
    {"cancel", cancel},
    {"too_long", too_long},
    {"reuse", reuse},
    {"worlds", worlds},
    {"threads", threads},
    {"signals", signals},
    {"abi", abi},
    {"alone", alone},
    {"killed", killed},
    {"exits_with_error", exits_with_error},
    {"closes_and_exits_with_error", closes_and_exits_with_error},
    {"mpi_fails", mpi_fails},
    {"stops_half_way", stops_half_way},
    {"stays_away", stays_away},
    {"closes_late", closes_late},
};

}  // namespace
}  // namespace meron::test

// Several cases are run one after the other.
int main(int argc, char** argv) {
  for (int i = 2; i < argc; ++i) {
    bool found = false;
    for (const auto& entry : meron::test::kCases) {
      if (std::strcmp(entry.name, argv[i]) != 0) continue;
      entry.run(argv[1]);
      found = true;
    }
    EXPECT(found);
  }
  return argc > 2 ? 0 : 2;
}

// SPDX-License-Identifier: Apache-2.0
// Runs a function as the ranks of a world, and gets their results back. The test's own process
// never calls Meron: ranks are forked from it, so that each starts as a fresh process.
#pragma once

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "meron/meron.h"
#include "tests/distributed/sanitized.h"
#include "tests/distributed/socket_transport.h"

namespace meron::test {

// Memory that forked ranks write and the test reads.
template <class T>
class Shared {
 public:
  explicit Shared(size_t count) : count_(count) {
    void* memory = mmap(nullptr, count * sizeof(T) + 1, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    data_ = static_cast<T*>(memory);
  }
  ~Shared() { munmap(data_, count_ * sizeof(T) + 1); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  T& operator[](size_t i) { return data_[i]; }
  T* data() { return data_; }
  size_t size() const { return count_; }

 private:
  size_t count_;
  T* data_;
};

// One failed call ends the rank; the test sees its exit code and its message.
inline void check(meron_status status, meron_error* err, const char* call) {
  if (status >= 0) return;
  std::fprintf(stderr, "%s: %s: %s\n", call, meron_status_name(status), meron_error_message(err));
  std::fflush(stderr);
  _exit(3);
}
#define CALL(function, ...)                                              \
  do {                                                                   \
    meron_error* call_error = nullptr;                                   \
    const meron_status call_status = function(__VA_ARGS__, &call_error); \
    ::meron::test::check(call_status, call_error, #function);            \
  } while (0)

inline void finish(meron_future future) {
  CALL(meron_future_wait, future, MERON_TIMEOUT_DEFAULT);
  CALL(meron_future_release, future);
}

struct World {
  const char* transport = "shm";
  int ranks = 2;
  std::string plan = "zero3";
  int64_t timeout_ns = 30'000'000'000;
  uint64_t max_message = 0;  // of sockets
  int node = 0;              // cluster: ranks of a node
  const char* device = nullptr;
  bool devices = false;  // each rank has one of its own, by its number
  meron_log_fn log = nullptr;
  const char* faults = nullptr;  // MERON_IO_FAULTS of the last rank, a process
};

// A token and a job name that no other test run shares.
inline std::string fresh_token() {
  static int counter = 0;
  char text[65];
  std::snprintf(text, sizeof text, "%016x%016x%016x%016x", static_cast<unsigned>(getpid()),
                static_cast<unsigned>(++counter), 0xa5a5u, 0x5a5au);
  return text;
}

inline meron_status try_open(meron_context* out, const World& world, int rank,
                             const std::string& token, const meron_transport* custom,
                             meron_error** error) {
  meron_context_options options = MERON_CONTEXT_OPTIONS_INIT;
  options.rank = rank;
  options.world_size = world.ranks;
  const bool cluster = std::strcmp(world.transport, "cluster") == 0;
  options.transport = custom != nullptr && !cluster ? "custom" : world.transport;
  options.custom = custom;
  options.token = token.c_str();
  options.job = token.c_str();
  options.timeout_ns = world.timeout_ns;
  options.arena_reserve = 256ull << 20;
  meron_plan plan{};
  if (!world.plan.empty() && world.plan.front() == '{') {
    CALL(meron_plan_parse, &plan, world.plan.data(), world.plan.size());
  } else {
    CALL(meron_plan_preset, &plan, world.plan.c_str());
  }
  options.plan = plan;
  std::string device = world.device != nullptr ? world.device : "";
  if (world.devices) device.append(":").append(std::to_string(rank));
  options.device = world.device != nullptr ? device.c_str() : nullptr;
  options.log = world.log;
  const meron_status status = meron_context_open(out, &options, error);
  CALL(meron_plan_release, plan);
  return status;
}

inline meron_context open_context(const World& world, int rank, const std::string& token,
                                  const meron_transport* custom = nullptr) {
  meron_context context{};
  CALL(try_open, &context, world, rank, token, custom);
  return context;
}

using RankMain = std::function<void(int rank, meron_context context)>;

// Runs `body` on every rank: as processes (self, shm, sockets, cluster) or as threads of one
// process (local, sockets-threads). In a cluster, ranks say that they are on nodes of `world.node`
// ranks, and sockets join the nodes. True when all ranks ended well.
inline bool run_world(const World& world, const RankMain& body) {
  const std::string token = fresh_token();
  const bool cluster = std::strcmp(world.transport, "cluster") == 0;
  const bool sockets = std::strncmp(world.transport, "sockets", 7) == 0 || cluster;
  const bool threads = std::strcmp(world.transport, "local") == 0 ||
                       std::strcmp(world.transport, "sockets-threads") == 0;
  SocketMesh mesh(sockets ? world.ranks : 0);
  const auto rank_main = [&](int rank) {
    std::unique_ptr<SocketTransport> transport;
    meron_transport table = MERON_TRANSPORT_INIT;
    if (cluster) {
      setenv("MERON_NODE", std::to_string(rank / world.node).c_str(), 1);
    }
    if (world.faults != nullptr && rank == world.ranks - 1) {
      setenv("MERON_IO_FAULTS", world.faults, 1);
    }
    if (sockets) {
      transport = std::make_unique<SocketTransport>(mesh.take(rank));
      if (!threads) mesh.drop();
      table = transport->table(world.max_message);
    }
    const meron_context context = open_context(world, rank, token, sockets ? &table : nullptr);
    body(rank, context);
    CALL(meron_context_close, context);
    if (sockets && !transport->closed()) std::abort();
  };
  std::fflush(nullptr);
  std::vector<pid_t> children;
  for (int process = 0; process < (threads ? 1 : world.ranks); ++process) {
    const pid_t child = fork();
    if (child == 0) {
      if (threads) {
        std::vector<std::thread> ranks;
        for (int rank = 0; rank < world.ranks; ++rank) ranks.emplace_back(rank_main, rank);
        for (std::thread& rank : ranks) rank.join();
      } else {
        rank_main(process);
      }
      std::fflush(nullptr);
      _exit(0);
    }
    children.push_back(child);
  }
  mesh.drop();
  bool well = true;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
      std::fprintf(stderr, "a rank ended with status %#x\n", static_cast<unsigned>(status));
      well = false;
    }
  }
  return well;
}

}  // namespace meron::test

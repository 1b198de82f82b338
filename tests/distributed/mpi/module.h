// SPDX-License-Identifier: Apache-2.0
// libmeron_mpi.so as the engine sees it: opened at run time, one table per context. A failure
// prints a line and ends the rank with status 1.
#pragma once

#include <dlfcn.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "modules/mpi/mpi_module.h"

namespace meron::test {

inline int rank_of_messages = -1;

#define EXPECT(condition)                                                  \
  do {                                                                     \
    if (!(condition)) ::meron::test::fail(__FILE__, __LINE__, #condition); \
  } while (0)

// No exit functions: other ranks are ended by mpirun.
[[noreturn]] inline void fail(const char* file, int line, const char* what) {
  std::fprintf(stderr, "%s:%d: rank %d: %s\n", file, line, rank_of_messages, what);
  std::fflush(nullptr);
  _Exit(1);
}

inline meron_mpi_open_fn open_function(const char* library) {
  void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) std::fprintf(stderr, "%s\n", dlerror());
  EXPECT(handle != nullptr);
  void* symbol = dlsym(handle, "meron_mpi_open");
  EXPECT(symbol != nullptr);
  return reinterpret_cast<meron_mpi_open_fn>(symbol);
}

using Bytes = std::vector<unsigned char>;

class World {
 public:
  explicit World(const char* library) {
    char why[256] = "";
    const meron_status status =
        open_function(library)(MERON_MPI_MODULE_ABI, &world_, why, sizeof(why));
    if (status != MERON_OK) std::fprintf(stderr, "open: %s\n", why);
    EXPECT(status == MERON_OK);
    rank_of_messages = world_.rank;
  }
  ~World() { close(); }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  void close() {
    if (!open_) return;
    open_ = false;
    table().closed(table().user);
  }

  int rank() const { return world_.rank; }
  int size() const { return world_.world_size; }
  const meron_mpi_world& world() const { return world_; }
  const meron_transport& table() const { return world_.transport; }

  // As the engine does: asked again until the transport takes it.
  uint64_t send(int peer, uint64_t tag, const void* data, uint64_t bytes) {
    return start([&](uint64_t* request) {
      return table().send(table().user, request, peer, tag, data, bytes);
    });
  }
  uint64_t receive(int peer, uint64_t tag, void* data, uint64_t bytes) {
    return start([&](uint64_t* request) {
      return table().receive(table().user, request, peer, tag, data, bytes);
    });
  }
  uint64_t send(int peer, uint64_t tag, const Bytes& bytes) {
    return send(peer, tag, bytes.data(), bytes.size());
  }
  uint64_t receive(int peer, uint64_t tag, Bytes& bytes) {
    return receive(peer, tag, bytes.data(), bytes.size());
  }

  meron_status test(uint64_t request, uint64_t* bytes) {
    return table().test(table().user, request, bytes);
  }
  // The size of the message.
  uint64_t wait(uint64_t request) {
    uint64_t bytes = 0;
    meron_status status;
    while ((status = test(request, &bytes)) == MERON_IN_PROGRESS) pause();
    EXPECT(status == MERON_OK);
    return bytes;
  }
  void cancel(uint64_t request) { table().cancel(table().user, request); }

  // Returns when every rank has called it.
  void meet(uint64_t tag) {
    std::vector<uint64_t> requests;
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      requests.push_back(receive(peer, tag, nullptr, 0));
      requests.push_back(send(peer, tag, nullptr, 0));
    }
    for (const uint64_t request : requests) EXPECT(wait(request) == 0);
  }

  void pause() const { table().idle(table().user, 1'000'000); }

 private:
  template <class Call>
  uint64_t start(Call call) {
    uint64_t request = 0;
    meron_status status;
    while ((status = call(&request)) == MERON_IN_PROGRESS) pause();
    EXPECT(status == MERON_OK);
    return request;
  }

  meron_mpi_world world_ = {};
  bool open_ = true;
};

}  // namespace meron::test

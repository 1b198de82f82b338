// SPDX-License-Identifier: Apache-2.0
// The fake library as tests hold it, and ranks of its communicators.
#pragma once

#include <dlfcn.h>
#include <gmock/gmock.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "device/modules.h"

namespace meron {

using namespace std::chrono_literals;

// A copy of a library, loaded until this goes.
class LoadedCopy {
 public:
  explicit LoadedCopy(const char* path) : handle_(dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
    EXPECT_NE(handle_, nullptr) << dlerror();
  }
  ~LoadedCopy() {
    if (handle_ != nullptr) dlclose(handle_);
  }
  LoadedCopy(const LoadedCopy&) = delete;
  LoadedCopy& operator=(const LoadedCopy&) = delete;

  template <class Function>
  Function* function(const char* name) const {
    return reinterpret_cast<Function*>(dlsym(handle_, name));
  }
  void set(const char* key, int value) const {
    function<void(const char*, int)>("fake_nccl_set")(key, value);
  }
  int alive() const { return function<int()>("fake_nccl_alive")(); }
  int registered() const { return function<int()>("fake_nccl_registered")(); }
  int windows() const { return function<int()>("fake_nccl_windows")(); }
  int allocated() const { return function<int()>("fake_nccl_allocated")(); }
  int policy() const { return function<int()>("fake_nccl_policy")(); }

 private:
  void* const handle_;
};

inline Status wait_ready(const DeviceCommunicator& communicator) {
  const auto end = std::chrono::steady_clock::now() + 30s;
  while (std::chrono::steady_clock::now() < end) {
    MERON_ASSIGN(const bool ready, communicator.ready());
    if (ready) return Ok{};
    std::this_thread::sleep_for(100us);
  }
  return Error(MERON_E_TIMEOUT, "the test waited in vain");
}

inline void run_ranks(int size, const std::function<void(DeviceCommunicator&)>& body,
                      std::chrono::milliseconds timeout = 20s, bool copy_engines = false) {
  const auto library = open_collectives("nccl").value();
  const CommunicatorId id = library->create_id().value();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      auto begun = library->begin(id, size, rank, -1, timeout, copy_engines);
      ASSERT_TRUE(begun.ok()) << begun.error().info().what;
      const auto communicator = *begun;
      const Status ready = wait_ready(*communicator);
      ASSERT_TRUE(ready.ok()) << ready.error().info().what;
      body(*communicator);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace meron

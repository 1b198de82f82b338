// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of a test, each with a stream of the emulated device and its communicator.
#pragma once

#include <gmock/gmock.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "device/modules.h"

namespace meron {

using namespace std::chrono_literals;

// Until all ranks have come, or the communicator has failed.
inline Status wait_ready(const DeviceCommunicator& communicator) {
  const auto end = std::chrono::steady_clock::now() + 30s;
  while (std::chrono::steady_clock::now() < end) {
    MERON_ASSIGN(const bool ready, communicator.ready());
    if (ready) return Ok{};
    std::this_thread::sleep_for(100us);
  }
  return Error(MERON_E_TIMEOUT, "the test waited in vain");
}

struct TestRank {
  TestRank(const DeviceCollectives& library, const CommunicatorId& id, int size, int rank,
           std::chrono::milliseconds timeout = 20s, int device_index = 0)
      : device(open_device("emulated:" + std::to_string(device_index)).value()),
        stream(device->create_stream(false).value()),
        communicator(library.begin(id, size, rank, device_index, timeout).value()) {}

  DeviceMemory memory(uint64_t bytes) const {
    return device->allocate(bytes, stream.get(), "a test").value();
  }
  // The value of every byte, by work of the stream.
  void fill(std::byte* data, int value, uint64_t bytes) const {
    ASSERT_TRUE(device->fill(data, static_cast<uint8_t>(value), bytes, stream.get()).ok());
  }
  void synchronize() const { ASSERT_TRUE(device->synchronize(stream.get()).ok()); }
  bool is_ready() const {
    const auto ready = communicator->ready();
    if (!ready.ok()) ADD_FAILURE() << ready.error().info().what;
    return ready.ok() && *ready;
  }
  int size() const { return communicator->size(); }
  int rank() const { return communicator->rank(); }

  std::shared_ptr<Device> device;
  DeviceStream stream;
  std::shared_ptr<DeviceCommunicator> communicator;
};

// The value of a byte.
inline int at(const std::byte* data, uint64_t index) {
  return std::to_integer<int>(data[index]);
}

inline void run_threads(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back([&body, i] { body(i); });
  for (std::thread& thread : threads) thread.join();
}

// `body` as each rank of a communicator that is ready. It closes it by itself, or leaves it open.
// `spread`: rank i is on device i.
inline void run_ranks(int size, const std::function<void(TestRank&)>& body,
                      std::chrono::milliseconds timeout = 20s, bool spread = false) {
  const auto library = open_collectives("emulated").value();
  const CommunicatorId id = library->create_id().value();
  std::latch all_ready(size);
  run_threads(size, [&](int rank) {
    TestRank own(*library, id, size, rank, timeout, spread ? rank : 0);
    const Status ready = wait_ready(*own.communicator);
    all_ready.arrive_and_wait();  // no rank ends it before all have seen that it is ready
    ASSERT_TRUE(ready.ok()) << ready.error().info().what;
    body(own);
  });
}

// Tests that set up the emulated device, each for itself. The parameter: ranks.
class CollectivesTest : public testing::TestWithParam<int> {
 protected:
  void TearDown() override { ::unsetenv("MERON_EMULATED_DEVICE"); }
};

}  // namespace meron

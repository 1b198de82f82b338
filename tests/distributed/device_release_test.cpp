// SPDX-License-Identifier: Apache-2.0
// A gather into the caller's memory that one thread releases while another copies for it: once the
// release has returned, the memory is the caller's again.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <thread>

#include "tests/distributed/device_trainer.h"
#include "tests/distributed/one_param.h"

namespace meron::test {
namespace {

// Several of the pieces that are copied between two checks for cancellation.
constexpr uint64_t kBytes = 64 << 20;

// Memory that the engine fills, and a second view of it, by which the test sees how far it is: to
// ThreadSanitizer these are two places.
class Destination {
 public:
  Destination() {
    const int fd = memfd_create("destination", MFD_CLOEXEC);
    require(fd >= 0 && ftruncate(fd, kBytes) == 0, "memory");
    for (std::byte** view : {&data_, &seen_}) {
      void* const mapped = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
      require(mapped != MAP_FAILED, "a mapping");
      *view = static_cast<std::byte*>(mapped);
    }
    close(fd);
    first().store(1);
  }
  std::byte* data() const { return data_; }
  bool untouched() const { return first().load() == 1; }
  // From now on, a write to it ends the process.
  void protect() const { require(mprotect(data_, kBytes, PROT_NONE) == 0, "protection"); }

 private:
  std::atomic_ref<uint32_t> first() const {
    return std::atomic_ref(*reinterpret_cast<uint32_t*>(seen_));
  }
  std::byte* data_ = nullptr;
  std::byte* seen_ = nullptr;
};

// Rank 1 publishes last: rank 0's gather is pending until then, and a waiting thread copies.
TEST(DeviceReleaseTest, NothingIsWrittenToTheCallersMemoryAfterARelease) {
  for (const bool on_stream : {false, true}) {
    SCOPED_TRACE(on_stream ? "on a stream" : "without a stream");
    World world{"shm", 2, "zero3"};
    world.device = kDevice;
    Shared<std::atomic<int>> begun(1);
    EXPECT_TRUE(run_world(world, [&](int rank, meron_context context) {
      const OneParam model(context, kBytes / sizeof(float));
      meron_future update{};
      CALL(meron_update_begin, &update, &model.unit, 1);
      CALL(meron_future_wait, update, MERON_TIMEOUT_DEFAULT);
      while (rank == 1 && begun[0].load() == 0) std::this_thread::yield();
      CALL(meron_update_publish, update);
      meron_gather_options options = MERON_GATHER_OPTIONS_INIT;
      options.tier = MERON_TIER_HOST;
      meron_future gather{};
      if (rank == 1) {
        CALL(meron_gather_begin, &gather, &model.unit, 1, &options);
        finish(gather);
        return;
      }
      const TrainersDevice device;
      const Destination to;
      const meron_destination destination{model.param, to.data(), kBytes};
      options.mode = MERON_GATHER_INTO;
      options.destinations = &destination;
      options.destination_count = 1;
      CALL(meron_gather_begin, &gather, &model.unit, 1, &options);
      require(to.untouched(), "it waits for rank 1");
      begun[0] = 1;
      std::thread copies([&] { CALL(meron_future_wait, gather, MERON_TIMEOUT_DEFAULT); });
      while (to.untouched()) std::this_thread::yield();
      if (on_stream) {
        CALL(meron_gather_release_on_stream, gather, device.stream());
      } else {
        CALL(meron_future_release, gather);
      }
      to.protect();
      copies.join();
    }));
  }
}

}  // namespace
}  // namespace meron::test

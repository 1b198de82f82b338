// SPDX-License-Identifier: Apache-2.0
// Views in the device's memory that are released while streams still read them: the memory is used
// again after the last of them has.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "tests/conformance/c/dlpack.h"
#include "tests/distributed/device_trainer.h"

namespace meron::test {
namespace {

constexpr size_t kCount = 1000;
constexpr uint64_t kBytes = kCount * sizeof(float);

std::vector<float> ramp() {
  std::vector<float> values(kCount);
  for (size_t i = 0; i < kCount; ++i) values[i] = static_cast<float>(i);
  return values;
}

// A reader whose stream has other work to do first, until open().
class SlowReader {
 public:
  SlowReader() : seen_(device_.allocate(kBytes)) {}
  ~SlowReader() { device_.release(seen_); }
  SlowReader(const SlowReader&) = delete;
  SlowReader& operator=(const SlowReader&) = delete;
  void* stream() const { return device_.stream(); }
  void read(const void* view) {
    device_.notify(
        [](void* reader) {
          while (!static_cast<SlowReader*>(reader)->open_) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          }
        },
        this);
    device_.copy(seen_, view, kBytes);
  }
  void open() { open_ = true; }
  std::vector<float> seen() const {
    std::vector<float> values(kCount);
    device_.copy(values.data(), seen_, kBytes);
    return values;
  }
  uint64_t free_bytes() const { return device_.free_bytes(); }

 private:
  const TrainersDevice device_;
  void* const seen_;
  std::atomic<bool> open_{false};
};

// All leases are released. The memory is still the view's until the reader has read it, and free
// soon after.
void expect_held_until_read(SlowReader& slow, uint64_t held) {
  // Streams that do not wait for the reader have nothing to do.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  require(slow.free_bytes() == held, "the memory is not free while a stream reads it");
  slow.open();
  require(slow.seen() == ramp(), "the values");
  for (int tries = 0; slow.free_bytes() == held; ++tries) {
    require(tries < 5000, "the memory is free after that");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

bool run_on_device(const std::function<void(meron_context)>& body) {
  World world{"shm", 1, "zero3"};
  world.device = kDevice;
  return run_world(world, [&](int, meron_context context) { body(context); });
}

meron_future begin_view(const OneParam& model) {
  meron_future gather{};
  CALL(meron_gather_begin, &gather, &model.unit, 1, nullptr);
  return gather;
}
const void* view_on(meron_future gather, meron_param param, void* stream) {
  CALL(meron_gather_wait_stream, gather, stream, MERON_TIMEOUT_DEFAULT);
  meron_view view{};
  CALL(meron_gather_view, &view, gather, param);
  return view.data;
}

// Both gathers of a unit have one copy of its values. The stream of the last release has no work.
TEST(DeviceRelease, WaitsForTheStreamsOfAllGathers) {
  if (!emulated()) GTEST_SKIP() << "of the emulated device";
  for (const bool on_stream : {true, false}) {
    SCOPED_TRACE(on_stream);
    EXPECT_TRUE(run_on_device([&](meron_context context) {
      SlowReader slow;
      const TrainersDevice quick;
      const OneParam model(context, kCount);
      model.write(ramp());
      const meron_future first = begin_view(model), last = begin_view(model);
      slow.read(view_on(first, model.param, slow.stream()));
      (void)view_on(last, model.param, quick.stream());
      const uint64_t held = slow.free_bytes();
      CALL(meron_gather_release_on_stream, first, slow.stream());
      if (on_stream) {
        CALL(meron_gather_release_on_stream, last, quick.stream());
      } else {
        CALL(meron_future_release, last);
      }
      expect_held_until_read(slow, held);
    }));
  }
}

struct Order {
  bool export_first = false;  // before any stream waits
  bool tensor_last = true;    // the tensor's lease is the last
  bool other_reader = false;  // another stream, without work, waits as well
};

void reads_a_tensor(meron_context context, const Order& order) {
  SlowReader slow;
  const TrainersDevice quick;
  const OneParam model(context, kCount);
  model.write(ramp());
  const meron_future gather = begin_view(model);
  CALL(meron_future_wait, gather, MERON_TIMEOUT_DEFAULT);
  DLManagedTensorVersioned* tensor = nullptr;
  if (order.export_first) CALL(meron_gather_dlpack, &tensor, gather, model.param);
  CALL(meron_gather_wait_stream, gather, slow.stream(), MERON_TIMEOUT_DEFAULT);
  if (order.other_reader) {
    CALL(meron_gather_wait_stream, gather, quick.stream(), MERON_TIMEOUT_DEFAULT);
  }
  if (!order.export_first) CALL(meron_gather_dlpack, &tensor, gather, model.param);
  if (order.tensor_last) CALL(meron_future_release, gather);
  slow.read(tensor->dl_tensor.data);
  const uint64_t held = slow.free_bytes();
  tensor->deleter(tensor);
  if (!order.tensor_last) CALL(meron_future_release, gather);
  CALL(meron_context_progress, context);
  expect_held_until_read(slow, held);
}

// A consumer drops a tensor as soon as it has asked for the last work with it.
TEST(DeviceRelease, ATensorWaitsForTheStreamsThatWaitedForIt) {
  if (!emulated()) GTEST_SKIP() << "of the emulated device";
  const Order orders[] = {{}, {true}, {false, false}, {false, true, true}, {false, false, true}};
  for (const Order& order : orders) {
    SCOPED_TRACE(&order - orders);
    EXPECT_TRUE(run_on_device([&](meron_context context) { reads_a_tensor(context, order); }));
  }
}

}  // namespace
}  // namespace meron::test

// SPDX-License-Identifier: Apache-2.0
// The C++ layer on a device: the emulated one, whose memory is the host's.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <numeric>
#include <vector>

#include "tests/capi/hpp/world.h"

namespace meron::test {
namespace {

Context open_emulated(DeviceAllocator* allocator = nullptr) {
  return open_self([&](ContextOptions& options) {
    options.device = "emulated";
    options.allocator = allocator;
  });
}

struct Written {
  explicit Written(const Context& context)
      : param(context.param("w", {3, 4})), unit(context.unit("u", param)), values(12) {
    std::iota(values.begin(), values.end(), 0.0f);
    Update writing = update(unit);
    writing.write(param, values);
    writing.publish();
  }
  std::vector<float> seen(const Gather& full) const {
    const auto span = full.view(param).as<const float>();
    return {span.begin(), span.end()};
  }
  Param param;
  Unit unit;
  std::vector<float> values;
};

TEST(Device, AStreamWaitsForAGather) {
  const Context context = open_emulated();
  const Written made(context);
  Gather full = gather_begin(made.unit);
  full.wait_stream();
  EXPECT_TRUE(full.wait_stream_for(nullptr, std::chrono::seconds(1)));
  full.wait();
  EXPECT_EQ(made.values, made.seen(full));
  const uint64_t up = context.stats().device_up_bytes;
  EXPECT_GE(up, 48u);
  const Gather host = gather(made.unit, Tier::host);
  EXPECT_EQ(made.values, made.seen(host));
  EXPECT_EQ(up, context.stats().device_up_bytes);
  full.release_on_stream();
  EXPECT_FALSE(full);
  EXPECT_EQ(1u, made.unit.info().leases);
}

TEST(Device, GradientsAndDestinationsInItsMemory) {
  const Context context = open_emulated();
  const Written made(context);
  const Gather full = gather(made.unit);
  const float* const data = full.view(made.param).as<const float>().data();
  reduce_begin(made.unit, {device_source(made.param, data, 12, DType::f32)}).wait();
  const auto sums = reduced(made.param).as<float>();
  EXPECT_EQ(made.values, std::vector<float>(sums.begin(), sums.end()));
  EXPECT_GE(context.stats().device_down_bytes, 48u);

  const Param other = context.param("v", {3, 4});
  const Unit unit_of_other = context.unit("of v", other);
  const Gather place = gather(unit_of_other);
  auto* const into = const_cast<float*>(place.view(other).as<const float>().data());
  gather_into(made.unit, {device_destination(made.param, into)});
  auto* const flat = static_cast<float*>(
      const_cast<void*>(static_cast<const void*>(place.view(other).as<const float>().data())));
  gather_into(made.unit, {device_flat_destination(made.unit, 0, flat)});
  EXPECT_EQ(made.values, std::vector<float>(into, into + 12));
}

class Pool final : public DeviceAllocator {
 public:
  explicit Pool(bool has_some) : has_some_(has_some) {}
  void* allocate(uint64_t bytes, void*) override {
    if (!has_some_) throw std::bad_alloc();
    ++lent;
    return std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  }
  void release(void* data, uint64_t, void*) noexcept override {
    --lent;
    std::free(data);
  }
  std::atomic<int> lent{0};

 private:
  bool has_some_;
};

TEST(Device, AnAllocatorOfTheCallersOwn) {
  Pool pool(true);
  {
    const Context context = open_emulated(&pool);
    const Written made(context);
    const Gather full = gather(made.unit);
    EXPECT_GT(pool.lent, 0);
    EXPECT_EQ(made.values, made.seen(full));
  }
  EXPECT_EQ(0, pool.lent);
  Pool empty(false);
  const Context context = open_emulated(&empty);
  const Written made(context);
  expect_error(MERON_E_NO_MEMORY, [&] { static_cast<void>(gather(made.unit)); });
  EXPECT_EQ(made.values, made.seen(gather(made.unit, Tier::host)));
}

TEST(Device, WhatIsRefused) {
  expect_error(MERON_E_ARGUMENT,
               [] { open_self([](ContextOptions& options) { options.device = "gpu"; }); });
  const Context context = open_self();
  const Written made(context);
  Gather full = gather(made.unit);
  expect_error(MERON_E_ARGUMENT, [&] { full.wait_stream(); });
  expect_error(MERON_E_ARGUMENT, [&] { full.release_on_stream(); });
  EXPECT_EQ(made.values, made.seen(full));
}

}  // namespace
}  // namespace meron::test

// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/accumulate.h"
#include "runner.h"

namespace meron::cuda {
namespace {

using kernels::Array;
using kernels::kTypes;

// Every task has its own size, alignment and values. Conversions keep a NaN's bits.
void expect_cast(Type dst, Type src, const std::vector<size_t>& sizes, bool add) {
  SCOPED_TRACE(testing::Message() << kernels::name_of(src) << " to " << kernels::name_of(dst)
                                  << (add ? ", added" : ""));
  std::vector<Array> expected;
  std::vector<Mirror> to, from;
  std::vector<CastTask> tasks;
  for (size_t t = 0; t < sizes.size(); ++t) {
    Array in(src, sizes[t], t % 3), out(dst, sizes[t], t % 5 / 3);
    kernels::fill(in, static_cast<uint32_t>(t), t % 2 == 0);
    kernels::fill(out, static_cast<uint32_t>(t + 100), t % 4 == 0);
    to.emplace_back(out);
    from.emplace_back(in);
    tasks.push_back({to.back().data(), from.back().data(), sizes[t]});
    if (add) {
      kernels::accumulate(out.data(), dst, in.data(), src, sizes[t]);
    } else {
      kernels::convert(out.data(), dst, in.data(), src, sizes[t]);
    }
    expected.push_back(out);
  }
  ASSERT_EQ((add ? accumulate : convert)(tasks.data(), tasks.size(), dst, src, stream()),
            cudaSuccess);
  for (size_t t = 0; t < sizes.size(); ++t) {
    Array actual(expected[t]);
    to[t].read(actual);
    ASSERT_TRUE(kernels::same(actual, expected[t])) << "task " << t << " of " << sizes[t];
    if (add) continue;
    ASSERT_EQ(std::memcmp(actual.data(), expected[t].data(), actual.size_bytes()), 0);
  }
}

TEST(CudaCast, EqualsTheCpu) {
  for (const Type dst : kTypes) {
    for (const Type src : kTypes) {
      for (const bool add : {false, true}) {
        expect_cast(dst, src, {0, 1, 3000, 255, 256, 0, 257, 1024, 4099, 5, 0}, add);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(CudaCast, MoreTasksThanALaunchTakes) {
  std::vector<size_t> sizes(3 * kCastTasks + 7);
  for (size_t t = 0; t < sizes.size(); ++t) sizes[t] = t * 37 % 90 * (t % 7 != 0);
  expect_cast(Type::bf16, Type::f32, sizes, false);
  expect_cast(Type::f32, Type::f16, sizes, true);
  expect_cast(Type::f32, Type::f32, {}, false);
  expect_cast(Type::f32, Type::f32, std::vector<size_t>(kCastTasks, 0), false);
}

TEST(CudaCast, EveryNumberOfTheNarrowFormats) {
  constexpr size_t kAll = 65536;
  for (const Type narrow : {Type::bf16, Type::f16}) {
    Array in(narrow, kAll), expected(Type::f32, kAll), actual(Type::f32, kAll);
    for (size_t i = 0; i < kAll; ++i) in.u16()[i] = static_cast<uint16_t>(i);
    kernels::convert(expected.data(), Type::f32, in.data(), narrow, kAll);
    Mirror from(in), to(actual);
    const CastTask task{to.data(), from.data(), kAll};
    ASSERT_EQ(convert(&task, 1, Type::f32, narrow, stream()), cudaSuccess);
    to.read(actual);
    EXPECT_EQ(std::memcmp(actual.data(), expected.data(), actual.size_bytes()), 0);
  }
}

TEST(CudaCast, InPlace) {
  Array array(Type::bf16, 5000);
  kernels::fill(array, 3, true);
  Mirror on_device(array);
  const CastTask task{on_device.data(), on_device.data(), array.size()};
  kernels::convert(array.data(), Type::f16, array.data(), Type::bf16, array.size());
  ASSERT_EQ(convert(&task, 1, Type::f16, Type::bf16, stream()), cudaSuccess);
  Array actual(array);
  on_device.read(actual);
  EXPECT_EQ(std::memcmp(actual.data(), array.data(), actual.size_bytes()), 0);
}

#if !defined(MERON_EMULATED_SIMT)  // which has no time for it
TEST(CudaCast, LargeArraysEqualTheCpu) {
  for (const Type dst : kTypes) {
    for (const Type src : kTypes) {
      expect_cast(dst, src, {3000001, 17, (size_t{4} << 20), 999999}, false);
      expect_cast(dst, src, {(size_t{4} << 20) + 3, 17, 1000000}, true);
    }
  }
}
#endif

}  // namespace
}  // namespace meron::cuda

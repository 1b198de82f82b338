// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/reduce.h"

#include "runner.h"

namespace meron::cuda {
namespace {

using kernels::Array;
using kernels::ExactSum;
using kernels::kTypes;

struct Case {
  Type type;
  size_t count, n, offset;
  bool accumulate, special;
};

void expect_reduced(const Case& c) {
  SCOPED_TRACE(testing::Message() << c.count << " x " << c.n << " of " << kernels::name_of(c.type)
                                  << " at " << c.offset << (c.accumulate ? ", accumulated" : "")
                                  << (c.special ? ", special" : ""));
  std::vector<Array> inputs;
  std::vector<Mirror> mirrors;
  std::vector<const void*> pointers, device_pointers;
  for (size_t k = 0; k < c.count; ++k) {
    inputs.emplace_back(c.type, c.n, c.offset + k % 2 * (c.offset != 0));
    kernels::fill(inputs.back(), static_cast<uint32_t>(k + 1), c.special);
    mirrors.emplace_back(inputs.back());
    device_pointers.push_back(mirrors.back().data());
  }
  for (const Array& input : inputs) pointers.push_back(input.data());
  Array expected(Type::f32, c.n, c.offset);
  kernels::fill(expected, 77, c.special);
  Array actual(expected), unmeasured(expected);
  ExactSum squares, more;
  more.add(3.5);
  squares.add(3.5);
  kernels::reduce(expected.f32(), c.accumulate, pointers.data(), c.count, c.type, 0.3f, c.n,
                  &squares);
  Mirror out(actual), without(unmeasured), pieces = mirror_of(more.pieces());
  ASSERT_EQ(reduce(out.data<float>(), c.accumulate, device_pointers.data(), c.count, c.type, 0.3f,
                   c.n, pieces.data<SquaresPieces>(), stream()),
            cudaSuccess);
  ASSERT_EQ(reduce(without.data<float>(), c.accumulate, device_pointers.data(), c.count, c.type,
                   0.3f, c.n, nullptr, stream()),
            cudaSuccess);
  out.read(actual);
  without.read(unmeasured);
  ASSERT_TRUE(kernels::same(actual, expected));
  ASSERT_TRUE(kernels::same(unmeasured, expected));
  ASSERT_TRUE(same_sum(pieces, squares));
}

TEST(CudaReduce, EqualsTheCpu) {
  for (const Type type : kTypes) {
    for (const size_t n : {0u, 1u, 31u, 255u, 256u, 257u, 700u, 13000u}) {
      for (const size_t count : {1u, 3u, 8u}) {
        if (n > 1000 && count == 3) continue;
        expect_reduced({type, count, n, count == 3 ? 1u : 0u, count == 3, n % 2 != 0});
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(CudaReduce, AnyNumberOfInputs) {
  for (const size_t count : {0u, 1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 9u}) {
    for (const bool accumulate : {false, true}) {
      expect_reduced({Type::bf16, count, 600, 0, accumulate, false});
      expect_reduced({Type::f32, count, 300, 0, accumulate, true});
      if (testing::Test::HasFatalFailure()) return;
    }
  }
  expect_reduced({Type::f16, 2 * kReduceInputs + 5, 40, 0, true, false});
  expect_reduced({Type::f32, kReduceInputs, 40, 0, false, false});
}

#if !defined(MERON_EMULATED_SIMT)  // which has no time for it
TEST(CudaReduce, LargeArraysEqualTheCpu) {
  for (const Type type : kTypes) {
    expect_reduced({type, 8, (size_t{3} << 20) + 77, 0, false, false});
    expect_reduced({type, 2, (size_t{5} << 20) + 1, 3, true, false});
    if (testing::Test::HasFatalFailure()) return;
  }
}
#endif

TEST(CudaReduce, TheResultMayReplaceAnInput) {
  Array a(Type::f32, 3000), b(Type::f32, 3000);
  kernels::fill(a, 1, false);
  kernels::fill(b, 2, false);
  Mirror on_a(a), on_b(b);
  const void* inputs[] = {on_a.data(), on_b.data()};
  const void* host_inputs[] = {a.data(), b.data()};
  Array expected(Type::f32, 3000);
  kernels::reduce(expected.f32(), false, host_inputs, 2, Type::f32, 2.0f, 3000, nullptr);
  ASSERT_EQ(reduce(on_b.data<float>(), false, inputs, 2, Type::f32, 2.0f, 3000, nullptr, stream()),
            cudaSuccess);
  on_b.read(b);
  EXPECT_TRUE(kernels::same(b, expected));
}

TEST(CudaReduce, SquaresAreThoseOfASumThatIsGiven) {
  for (const Type type : kTypes) {
    for (const size_t n : {0u, 1u, 257u, 5000u}) {
      for (const bool special : {false, true}) {
        Array array(type, n, n % 3);
        kernels::fill(array, 5, special);
        const void* input = array.data();
        Array copy(Type::f32, n);
        ExactSum expected;
        kernels::reduce(copy.f32(), false, &input, 1, type, 1.0f, n, &expected);
        Mirror on_device(array), pieces = mirror_of(SquaresPieces{});
        ASSERT_EQ(squares(on_device.data(), type, n, pieces.data<SquaresPieces>(), stream()),
                  cudaSuccess);
        EXPECT_TRUE(same_sum(pieces, expected)) << n << " of " << kernels::name_of(type);
      }
    }
  }
}

}  // namespace
}  // namespace meron::cuda

// SPDX-License-Identifier: Apache-2.0
// Codecs on a device have the bytes, the sums and the residuals of the host's: on the emulated one,
// or on that which MERON_TEST_DEVICE names.
#include "quant/device_wire.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "device/modules.h"
#include "kernels/cpu/accumulate.h"
#include "os/thread_pool.h"
#include "quant/wire.h"

namespace meron {
namespace {

#ifndef MERON_TEST_DEVICE
#define MERON_TEST_DEVICE "emulated"
#endif

using Bytes = std::vector<std::byte>;

struct Case {
  Codec codec;
  DType dtype;
};

class DeviceWireTest : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    auto opened = open_device(MERON_TEST_DEVICE);
    ASSERT_TRUE(opened.ok()) << opened.error().info().what;
    device = std::move(*opened);
    stream = device->create_stream(false).value();
  }
  DeviceMemory put(const void* data, uint64_t bytes) {
    DeviceMemory memory = device->allocate(bytes, stream.get(), "a test").value();
    EXPECT_TRUE(device->copy(memory.data(), data, bytes, stream.get()).ok());
    return memory;
  }
  Bytes get(const DeviceMemory& memory) {
    Bytes bytes(memory.bytes());
    EXPECT_TRUE(device->copy(bytes.data(), memory.data(), bytes.size(), stream.get()).ok());
    EXPECT_TRUE(device->synchronize(stream.get()).ok());
    return bytes;
  }
  // Random values, with an outlier now and then.
  static Bytes values(DType dtype, uint64_t n, uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> wide(n);
    for (float& value : wide) value = normal(random) * (random() % 100 == 0 ? 50.0f : 1.0f);
    Bytes out(n * size_of(dtype));
    kernels::convert(out.data(), static_cast<kernels::Type>(dtype), wide.data(), kernels::Type::f32,
                     n);
    return out;
  }

  // Several blocks, and one that is not full.
  static constexpr uint64_t kElements = 5000;
  std::shared_ptr<Device> device;
  DeviceStream stream;
  ThreadPool threads{1};
};

TEST_P(DeviceWireTest, EncodesAndDecodesToTheBytesOfTheHost) {
  const auto& [codec, dtype] = GetParam();
  const Wire host(codec, threads);
  const DeviceWire wire(codec, *device, stream.get());
  const uint64_t encoded_bytes = wire_bytes(codec, kElements, size_of(dtype));
  std::vector<float> residual(kElements);
  const DeviceMemory lost = put(residual.data(), kElements * sizeof(float));
  const DeviceMemory encoded = put(Bytes(encoded_bytes).data(), encoded_bytes);
  const DeviceMemory decoded =
      put(Bytes(kElements * size_of(dtype)).data(), kElements * size_of(dtype));
  for (uint32_t turn = 0; turn < 2; ++turn) {  // the second one has a residual
    const Bytes in = values(dtype, kElements, turn);
    const Feedback feedback{codec.feedback ? residual.data() : nullptr,
                            static_cast<float>(codec.feedback_beta)};
    Bytes expected(encoded_bytes), back(in.size());
    host.encode(expected.data(), in.data(), dtype, kElements, turn, feedback, nullptr);
    host.decode(back.data(), dtype, expected.data(), kElements, false);

    const DeviceMemory given = put(in.data(), in.size());
    const meron_encode_task encode{encoded.data(), given.data(),
                                   codec.feedback ? reinterpret_cast<float*>(lost.data()) : nullptr,
                                   kElements, turn};
    const meron_cast_task decode{decoded.data(), encoded.data(), kElements};
    ASSERT_TRUE(wire.encode({&encode, 1}, dtype).ok());
    ASSERT_TRUE(wire.decode({&decode, 1}, dtype).ok());
    EXPECT_EQ(get(encoded), expected);
    EXPECT_EQ(get(decoded), back);
    const Bytes left = get(lost);
    EXPECT_EQ(std::memcmp(left.data(), residual.data(), left.size()), 0);
  }
}

TEST_P(DeviceWireTest, SumsToTheBitsOfTheHost) {
  const Codec& codec = GetParam().codec;
  const Wire host(codec, threads);
  const DeviceWire wire(codec, *device, stream.get());
  constexpr uint32_t kInputs = 3;
  std::vector<Bytes> inputs;
  std::vector<DeviceMemory> given;
  std::vector<const std::byte*> from;
  std::vector<const void*> from_device;
  for (uint32_t i = 0; i < kInputs; ++i) {
    const Bytes in = values(DType::f32, kElements, i);
    Bytes& encoded = inputs.emplace_back(Bytes(wire_bytes(codec, kElements, sizeof(float))));
    host.encode(encoded.data(), in.data(), DType::f32, kElements, i, {}, nullptr);
    given.push_back(put(encoded.data(), encoded.size()));
    from_device.push_back(given.back().data());
  }
  for (const Bytes& input : inputs) from.push_back(input.data());
  std::vector<float> sum(kElements, 0.5f);
  const DeviceMemory device_sum = put(sum.data(), kElements * sizeof(float));
  const DeviceMemory squares = put(Bytes(MERON_SQUARES_BYTES).data(), MERON_SQUARES_BYTES);
  kernels::ExactSum expected;
  host.sum(sum.data(), true, from.data(), kInputs, 0.25f, kElements, &expected);
  ASSERT_TRUE(wire.sum(reinterpret_cast<float*>(device_sum.data()), true, from_device, 0.25f,
                       kElements, squares.data())
                  .ok());
  EXPECT_EQ(std::memcmp(get(device_sum).data(), sum.data(), kElements * sizeof(float)), 0);
  kernels::ExactPieces pieces;
  std::memcpy(&pieces, get(squares).data(), sizeof(pieces));
  EXPECT_EQ(kernels::ExactSum(pieces).value(), expected.value());
}

Codec codec_of(CodecKind kind, bool smooth = false) {
  Codec codec{.kind = kind};
  codec.stochastic = codec.hadamard = smooth;
  if (smooth) codec.block = 64;
  codec.feedback = codec.blocked();
  codec.feedback_beta = codec.feedback ? 0.8 : 0.0;
  return codec;
}

INSTANTIATE_TEST_SUITE_P(Codecs, DeviceWireTest,
                         testing::Values(Case{codec_of(CodecKind::int8), DType::f32},
                                         Case{codec_of(CodecKind::int8), DType::bf16},
                                         Case{codec_of(CodecKind::int4), DType::f32},
                                         Case{codec_of(CodecKind::int4, true), DType::f16},
                                         Case{codec_of(CodecKind::int8, true), DType::bf16},
                                         Case{codec_of(CodecKind::bf16), DType::f32},
                                         Case{codec_of(CodecKind::bf16), DType::f16}),
                         [](const testing::TestParamInfo<Case>& info) {
                           return "Case" + std::to_string(info.index);
                         });

}  // namespace
}  // namespace meron

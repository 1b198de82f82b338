// SPDX-License-Identifier: Apache-2.0
// Executor of arithmetic on arrays: threads of the host, or a stream of a device. On the host, work
// is done when a call returns; on a device it is queued on the stream. Both give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "device/device.h"
#include "kernels/cpu/exact_sum.h"
#include "kernels/cpu/quant.h"
#include "os/thread_pool.h"
#include "plan/codec.h"

namespace meron {

// Exact sums of squares, added up where the arithmetic runs. On a device `there` are
// MERON_SQUARES_BYTES of its memory.
struct Squares {
  kernels::ExactSum here;
  std::byte* there = nullptr;
};

// out = ([out] + in[0] + ... + in.back()) * scale in f32, from left to right; see
// kernels/cpu/reduce.h.
struct Sum {
  float* out = nullptr;
  bool accumulate = false;  // begins with what `out` has
  std::vector<const void*> in;
  DType type = DType::f32;  // of `in`
  float scale = 1.0f;
  uint64_t count = 0;
  Squares* squares = nullptr;  // those of the results are added to it
  bool read_next = false;      // other ranks read `out` next
  bool backwards = false;      // where `count` is small: from the end
};

class Place {
 public:
  virtual ~Place() = default;

  virtual Status zero(void* to, uint64_t bytes) = 0;
  // Into memory that other ranks have read.
  virtual Status copy(std::byte* to, const std::byte* from, uint64_t bytes) = 0;
  virtual Status sum(const Sum& sum) = 0;
  // The same where `in` is what the codec has made of f32.
  virtual Status sum_encoded(const Codec& codec, const Sum& sum) = 0;
  // f32; residuals are used if the codec has feedback. `error`: of blocked codecs, if the executor
  // reports it; may be null.
  virtual Status encode(const Codec& codec, std::span<const meron_encode_task> tasks,
                        kernels::QuantError* error) = 0;
  virtual Status decode(const Codec& codec, std::span<const meron_cast_task> tasks) = 0;
};

class PlaceOnHost final : public Place {
 public:
  explicit PlaceOnHost(ThreadPool& threads) : threads_(threads) {}
  Status zero(void* to, uint64_t bytes) override;
  Status copy(std::byte* to, const std::byte* from, uint64_t bytes) override;
  Status sum(const Sum& sum) override;
  Status sum_encoded(const Codec& codec, const Sum& sum) override;
  Status encode(const Codec& codec, std::span<const meron_encode_task> tasks,
                kernels::QuantError* error) override;
  Status decode(const Codec& codec, std::span<const meron_cast_task> tasks) override;

 private:
  ThreadPool& threads_;
};

class PlaceOnDevice final : public Place {
 public:
  PlaceOnDevice(const Device& device, void* stream) : device_(device), stream_(stream) {}
  Status zero(void* to, uint64_t bytes) override;
  Status copy(std::byte* to, const std::byte* from, uint64_t bytes) override;
  Status sum(const Sum& sum) override;
  Status sum_encoded(const Codec& codec, const Sum& sum) override;
  Status encode(const Codec& codec, std::span<const meron_encode_task> tasks,
                kernels::QuantError* error) override;
  Status decode(const Codec& codec, std::span<const meron_cast_task> tasks) override;

 private:
  const Device& device_;
  void* const stream_;
};

}  // namespace meron

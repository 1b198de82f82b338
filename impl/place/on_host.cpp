// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "base/held.h"
#include "base/layout.h"
#include "kernels/cpu/copy.h"
#include "kernels/cpu/reduce.h"
#include "place/place.h"
#include "quant/wire.h"

namespace meron {
namespace {

// Sums of at most so many elements run forward and backward in turn: one begins where the last one
// ended, with values that are still in a core's cache. They run in chunks, within which the
// prefetcher reads forward. Longer sums leave no useful values in the cache.
constexpr uint64_t kCached = 256 << 10;
constexpr uint64_t kChunk = 8192;

}  // namespace

Status PlaceOnHost::zero(void* to, uint64_t bytes) {
  const Recess recess(bytes >= kLongBytes);
  std::memset(to, 0, bytes);
  return Ok{};
}

Status PlaceOnHost::copy(std::byte* to, const std::byte* from, uint64_t bytes) {
  const uint64_t elements = bytes / sizeof(float);
  const Recess recess(elements >= kInlineElements);
  threads_.for_range(0, elements, kBlock, kInlineElements, [&](int, uint64_t begin, uint64_t end) {
    kernels::hand_over(to + begin * sizeof(float), from + begin * sizeof(float),
                       (end - begin) * sizeof(float));
  });
  return Ok{};
}

Status PlaceOnHost::sum(const Sum& sum) {
  if (sum.count == 0) return Ok{};
  std::vector<kernels::ExactSum> squares(
      sum.squares != nullptr ? static_cast<size_t>(threads_.threads()) : 0);
  const uint64_t size = size_of(sum.type);
  {
    const Recess recess(sum.count >= kInlineElements);
    threads_.for_range(
        0, sum.count, kBlock, kInlineElements, [&](int thread, uint64_t begin, uint64_t end) {
          std::vector<const void*> in(sum.in.size());
          const uint64_t count = end - begin;
          const uint64_t chunk = sum.backwards && count <= kCached ? kChunk : count;
          const uint64_t chunks = (count + chunk - 1) / chunk;
          for (uint64_t c = 0; c < chunks; ++c) {
            const uint64_t from = begin + chunk * (chunks - 1 - c);
            for (size_t i = 0; i < in.size(); ++i) {
              in[i] = static_cast<const std::byte*>(sum.in[i]) + from * size;
            }
            kernels::reduce(sum.out + from, sum.accumulate, in.data(), in.size(),
                            kernel_type(sum.type), sum.scale, std::min(chunk, end - from),
                            squares.empty() ? nullptr : &squares[static_cast<size_t>(thread)],
                            sum.read_next);
          }
        });
  }
  for (const auto& each : squares) sum.squares->here.merge(each);
  return Ok{};
}

Status PlaceOnHost::sum_encoded(const Codec& codec, const Sum& sum) {
  if (sum.count == 0) return Ok{};
  std::vector<const std::byte*> in(sum.in.size());
  std::transform(sum.in.begin(), sum.in.end(), in.begin(),
                 [](const void* each) { return static_cast<const std::byte*>(each); });
  kernels::ExactSum squares;
  Wire(codec, threads_)
      .sum(sum.out, sum.accumulate, in.data(), in.size(), sum.scale, sum.count,
           sum.squares != nullptr ? &squares : nullptr);
  if (sum.squares != nullptr) sum.squares->here.merge(squares);
  return Ok{};
}

Status PlaceOnHost::encode(const Codec& codec, std::span<const meron_encode_task> tasks,
                           kernels::QuantError* error) {
  const Wire wire(codec, threads_);
  for (const meron_encode_task& task : tasks) {
    Feedback feedback;
    if (task.residual != nullptr && codec.feedback) {
      feedback = {task.residual, static_cast<float>(codec.feedback_beta)};
    }
    wire.encode(static_cast<std::byte*>(task.out), task.in, DType::f32, task.count, task.seed,
                feedback, codec.blocked() ? error : nullptr);
  }
  return Ok{};
}

Status PlaceOnHost::decode(const Codec& codec, std::span<const meron_cast_task> tasks) {
  const Wire wire(codec, threads_);
  for (const meron_cast_task& task : tasks) {
    wire.decode(task.to, DType::f32, static_cast<const std::byte*>(task.from), task.count, false);
  }
  return Ok{};
}

}  // namespace meron

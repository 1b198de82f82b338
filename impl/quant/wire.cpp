// SPDX-License-Identifier: Apache-2.0
#include "quant/wire.h"

#include <algorithm>
#include <vector>

#include "base/held.h"
#include "kernels/cpu/accumulate.h"
#include "kernels/cpu/copy.h"
#include "kernels/cpu/reduce.h"

namespace meron {
kernels::QuantFormat Wire::format() const {
  return {.bits = codec_.bits(),
          .block = codec_.block,
          .stochastic = codec_.stochastic,
          .hadamard = codec_.hadamard};
}

void Wire::encode(std::byte* out, const void* in, DType type, uint64_t n, uint64_t seed,
                  const Feedback& feedback, kernels::QuantError* error, const void* minus) const {
  const auto* other = static_cast<const std::byte*>(minus);
  const auto* from = static_cast<const std::byte*>(in);
  const uint64_t size = size_of(type);
  const uint64_t grain = std::max<uint64_t>(codec_.block, kBlock);
  std::vector<kernels::QuantError> errors(static_cast<size_t>(threads_.threads()));
  const Recess recess(n >= kInlineElements);
  threads_.for_range(0, n, grain, kInlineElements, [&](int thread, uint64_t begin, uint64_t end) {
    if (!codec_.blocked()) {
      kernels::convert(out + begin * 2, kernel_type(narrow(codec_, type)), from + begin * size,
                       kernel_type(type), end - begin);
      return;
    }
    kernels::quantize(kernels::encoded_at(out, n, format(), begin / codec_.block),
                      from + begin * size, kernel_type(type), end - begin, format(), seed, begin,
                      other == nullptr ? nullptr : other + begin * size,
                      feedback.residual == nullptr ? nullptr : feedback.residual + begin,
                      feedback.beta,
                      error == nullptr ? nullptr : &errors[static_cast<size_t>(thread)]);
  });
  if (error == nullptr) return;
  for (const auto& each : errors) error->merge(each);
}

void Wire::decode(void* out, DType type, const std::byte* in, uint64_t n, bool handed_over,
                  bool difference) const {
  auto* to = static_cast<std::byte*>(out);
  const uint64_t size = size_of(type);
  const uint64_t grain = std::max<uint64_t>(codec_.block, kBlock);
  const Recess recess(n >= kInlineElements);
  threads_.for_range(0, n, grain, kInlineElements, [&](int, uint64_t begin, uint64_t end) {
    if (!codec_.blocked()) {
      kernels::convert(to + begin * size, kernel_type(type), in + begin * 2,
                       kernel_type(narrow(codec_, type)), end - begin);
      return;
    }
    kernels::dequantize(to + begin * size, kernel_type(type),
                        kernels::encoded_at(in, n, format(), begin / codec_.block), end - begin,
                        format(), difference, handed_over);
  });
}

void Wire::sum(float* out, bool accumulate, const std::byte* const* in, size_t count, float scale,
               uint64_t n, kernels::ExactSum* squares) const {
  const uint64_t grain = std::max<uint64_t>(codec_.block, kBlock);
  std::vector<kernels::ExactSum> sums(static_cast<size_t>(threads_.threads()));
  const Recess recess(n >= kInlineElements);
  threads_.for_range(0, n, grain, kInlineElements, [&](int thread, uint64_t begin, uint64_t end) {
    kernels::ExactSum* const own =
        squares == nullptr ? nullptr : &sums[static_cast<size_t>(thread)];
    if (!codec_.blocked()) {
      std::vector<const void*> inputs(count);
      for (size_t i = 0; i < count; ++i) inputs[i] = in[i] + begin * 2;
      kernels::reduce(out + begin, accumulate, inputs.data(), count,
                      kernel_type(narrow(codec_, DType::f32)), scale, end - begin, own);
      return;
    }
    std::vector<kernels::ConstEncoded> inputs(count);
    for (size_t i = 0; i < count; ++i) {
      inputs[i] = kernels::encoded_at(in[i], n, format(), begin / codec_.block);
    }
    kernels::dequantize_sum(out + begin, accumulate, inputs.data(), count, scale, end - begin,
                            format(), own);
  });
  if (squares == nullptr) return;
  for (const auto& each : sums) squares->merge(each);
}

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <type_traits>

#include "kernels/cuda/encode.cuh"
#include "kernels/cuda/squares.cuh"

namespace meron::cuda {
namespace {

struct EncodedSum {
  Layout layout;
  const float* before;  // that the sum begins with; or null
  uint64_t n;
  uint32_t count;
  float scale;
  ConstEncoded in[kEncodedInputs];
};

inline constexpr unsigned kInputsAtOnce = 8;

MERON_DEVICE void add_share(Share& total, const Share& term) {
#pragma unroll
  for (unsigned h = 0; h < 2; ++h) {
#pragma unroll
    for (unsigned c = 0; c < 4; ++c) {
      total.half[h].v[c] = total.half[h].v[c] + term.half[h].v[c];
    }
  }
}

// The tile at element `begin`; 0 from element n on. Codes are read kInputsAtOnce inputs at a time,
// and added one by one.
template <uint32_t kBits, bool kHadamard, bool kWhole>
MERON_DEVICE Share sum_tile(const EncodedSum& sum, uint64_t begin, unsigned lane) {
  const uint64_t at = begin + quad_of(lane);
  const Layout& layout = sum.layout;
  Share total = {};
  uint32_t k = 0;
  const auto add = [&](auto inputs) {
    Codes codes[inputs()];
    float steps[inputs()];
#pragma unroll
    for (unsigned i = 0; i < inputs(); ++i) {
      codes[i] = load_codes<kBits, kWhole>(sum.in[k + i].payload, begin, layout.padded, lane);
      steps[i] = load_step<kWhole>(sum.in[k + i].steps, at, layout);
    }
#pragma unroll
    for (unsigned i = 0; i < inputs(); ++i) {
      Share term = decode<kBits>(codes[i], steps[i]);
      if constexpr (kHadamard) butterflies(term, lane);
      if (i == 0 && k == 0 && sum.before == nullptr) {
        total = term;
      } else {
        add_share(total, term);
      }
    }
    k += inputs();
  };
  if (sum.before != nullptr) {
#pragma unroll
    for (unsigned h = 0; h < 2; ++h) {
      total.half[h] = widen(load_raw<kWhole>(sum.before, Type::f32, at + h * 32, sum.n), Type::f32);
    }
  }
  if constexpr (kWhole) {
#pragma unroll 1
    while (k + kInputsAtOnce <= sum.count) {
      add(std::integral_constant<unsigned, kInputsAtOnce>());
    }
    if (k + 4 <= sum.count) add(std::integral_constant<unsigned, 4>());
  }
#pragma unroll 1
  while (k < sum.count) add(std::integral_constant<unsigned, 1>());
#pragma unroll
  for (unsigned h = 0; h < 2; ++h) {
#pragma unroll
    for (unsigned c = 0; c < 4; ++c) {
      total.half[h].v[c] = total.half[h].v[c] * sum.scale;
      if (!kWhole && at + h * 32 + c >= sum.n) total.half[h].v[c] = 0.0f;
    }
  }
  return total;
}

MERON_DEVICE bool inputs_aligned(const EncodedSum& sum) {
  bool all = sum.before == nullptr || aligned(sum.before, Type::f32);
  for (uint32_t k = 0; k < sum.count; ++k) all &= aligned(sum.in[k].payload, 4);
  return all;
}

template <uint32_t kBits, bool kHadamard>
MERON_KERNEL sum_kernel(MERON_PARAMETER EncodedSum sum, float* out, SquaresPieces* to) {
  MERON_SHARED BlockSquares squares;
  const unsigned lane = lane_index();
  if (to != nullptr) squares.begin();
  const bool all_aligned = aligned(out, Type::f32) && inputs_aligned(sum);
  const uint64_t stride = uint64_t{block_count()} * kWarps * kTile;
  uint64_t begin = (uint64_t{block_index()} * kWarps + warp_index()) * kTile;
  for (; begin < sum.n; begin += stride) {
    const bool whole = all_aligned && begin + kTile <= sum.n;
    const Share total = whole ? sum_tile<kBits, kHadamard, true>(sum, begin, lane)
                              : sum_tile<kBits, kHadamard, false>(sum, begin, lane);
#pragma unroll
    for (unsigned h = 0; h < 2; ++h) {
      const uint64_t at = begin + quad_of(lane) + h * 32;
      const RawQuad raw = narrow(total.half[h], Type::f32);
      if (whole) {
        store_raw<true>(out, Type::f32, at, sum.n, raw);
      } else {
        store_raw<false>(out, Type::f32, at, sum.n, raw);
      }
    }
    if (to == nullptr) continue;
    const double value = sum_of_squares(total, lane);
    if (lane == 0) squares.add(value);
  }
  if (to != nullptr) squares.end(to);
}

// All of a tile is read before it is written, and all steps of a block before the block's: its
// warps have met for the maximum. So `to` may be an input.
template <uint32_t kBits, bool kHadamard>
MERON_KERNEL sum_quantize_kernel(MERON_PARAMETER EncodedSum sum, MERON_PARAMETER Target to) {
  MERON_SHARED EncodeShared shared;
  Encoder encoder(to, shared);
  const unsigned lane = lane_index();
  const bool all_aligned = aligned(to.payload, 4) && inputs_aligned(sum);
  const uint64_t stride = uint64_t{block_count()} * kWarps * kTile;
  for (uint64_t base = uint64_t{block_index()} * kWarps * kTile; base < sum.n; base += stride) {
    const uint64_t begin = base + warp_index() * kTile;
    const bool whole = all_aligned && begin + kTile <= sum.n;
    const Share v = whole ? sum_tile<kBits, kHadamard, true>(sum, begin, lane)
                          : sum_tile<kBits, kHadamard, false>(sum, begin, lane);
    Share t[1] = {v};
    if (to.layout.format.hadamard) transform(t[0], lane);
    uint32_t largest[1];
    encoder.find_largest(t, largest);
    const BlockScale scale(largest[0], to.layout.format);
    const Codes codes = encoder.put(t[0], scale, begin, whole);
    if (to.error != nullptr) encoder.count(v, encoder.decoded(codes, scale), scale, begin);
  }
  encoder.finish();
}

EncodedSum sum_of(const ConstEncoded* in, size_t count, const float* before, float scale, size_t n,
                  QuantFormat format) {
  EncodedSum sum{Layout(format, n), before, n, static_cast<uint32_t>(count), scale, {}};
  std::copy_n(in, count, sum.in);
  return sum;
}

uint64_t blocks_for(uint64_t n) {
  constexpr uint64_t kEach = uint64_t{kWarps} * kTile;
  return (n + kEach - 1) / kEach;
}

// Calls launch_as(bits, hadamard) with constants.
template <class Launch>
cudaError_t for_format(QuantFormat format, Launch launch_as) {
  const auto with = [&](auto bits) {
    return format.hadamard ? launch_as(bits, std::true_type()) : launch_as(bits, std::false_type());
  };
  return format.bits == 8 ? with(std::integral_constant<uint32_t, 8>())
                          : with(std::integral_constant<uint32_t, 4>());
}

}  // namespace

cudaError_t dequantize_sum(float* out, bool accumulate, const ConstEncoded* in, size_t count,
                           float scale, size_t n, QuantFormat format, SquaresPieces* squares,
                           cudaStream_t stream) {
  size_t done = 0;
  do {
    const size_t some = std::min(count - done, kEncodedInputs);
    const bool last = done + some == count;
    const EncodedSum sum = sum_of(in + done, some, accumulate || done != 0 ? out : nullptr,
                                  last ? scale : 1.0f, n, format);
    SquaresPieces* const to = last ? squares : nullptr;
    const cudaError_t error = for_format(format, [&](auto bits, auto hadamard) {
      return launch<sum_kernel<bits(), hadamard()>>(blocks_for(n), stream, sum, out, to);
    });
    if (error != cudaSuccess) return error;
    done += some;
  } while (done < count);
  return cudaSuccess;
}

cudaError_t dequantize_sum_quantize(Encoded out, const ConstEncoded* in, size_t count, float scale,
                                    size_t n, QuantFormat in_format, QuantFormat out_format,
                                    uint64_t seed, uint64_t first_element, QuantError* error,
                                    cudaStream_t stream) {
  if (count > kEncodedInputs) return cudaErrorInvalidValue;
  const EncodedSum sum = sum_of(in, count, nullptr, scale, n, in_format);
  const Target to{Layout(out_format, n), out.payload, out.steps, seed, first_element, error};
  return for_format(in_format, [&](auto bits, auto hadamard) {
    return launch<sum_quantize_kernel<bits(), hadamard()>>(blocks_for(n), stream, sum, to);
  });
}

}  // namespace meron::cuda

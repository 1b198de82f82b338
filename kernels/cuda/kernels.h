// SPDX-License-Identifier: Apache-2.0
// The kernels of kernels/cpu for a CUDA device. Results are the same bits: the header of the same
// name there defines each operation. Only a NaN's sign and payload are unspecified, and the last
// digits of a QuantError.
//
// All functions enqueue on `stream` of the current device, and return before the work is done:
// no function synchronizes or allocates. Arrays are in memory that the device reads and
// writes; arrays of pointers and of tasks, and a step's numbers, are in the host's memory and may
// be gone on return. Arguments are trusted. An error is an error of the launch. Work that was
// enqueued before stays enqueued.
//
// Arrays are aligned to their element. Reads and writes are faster if they are aligned to 16 bytes,
// too.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/exact_sum.h"
#include "kernels/cpu/quant.h"
#include "kernels/cpu/type.h"
#include "kernels/cpu/update.h"
#include "kernels/cuda/stream.h"

namespace meron::cuda {

using kernels::ConstEncoded;
using kernels::Encoded;
using kernels::QuantError;
using kernels::QuantFormat;
using kernels::StateType;
using kernels::Type;
using kernels::UpdateStep;

// A sum of squares in device memory, to which kernels add by integer atomics: any number of them,
// on any streams. Zeroed bytes are an empty sum. kernels::ExactSum is made of it on the host.
using SquaresPieces = kernels::ExactPieces;

// A step's scale of gradients, if the device itself has computed it.
struct StepScale {
  float grad_scale;
  int32_t skip;  // not 0: the step changes nothing
};

// --- Sums (kernels/cpu/reduce.h)

// As kernels::reduce(). With more than kReduceInputs inputs, `out` is written once for each so many
// and none but the first kReduceInputs may be the same array.
inline constexpr size_t kReduceInputs = 384;
cudaError_t reduce(float* out, bool accumulate, const void* const* in, size_t count, Type type,
                   float scale, size_t n, SquaresPieces* squares, cudaStream_t stream);

// Adds to `to` the squares that reduce() would add if `array` was its result.
cudaError_t squares(const void* array, Type type, size_t n, SquaresPieces* to, cudaStream_t stream);

// The step's numbers from the sum of squares of all gradients, which are multiplied by
// `inverse_scale` (1 / loss scale) before all else:
//   norm       = sqrt(total, rounded once) * inverse_scale
//   clip       = max_norm > 0 ? min(1, max_norm / (norm + 1e-6)) : 1
//   grad_scale = f32(clip * inverse_scale)
//   skip       = norm is infinite or NaN
// all in double. `norm` may be null.
cudaError_t finish_norm(const SquaresPieces* total, double inverse_scale, double max_norm,
                        StepScale* out, double* norm, cudaStream_t stream);

// --- Updates (kernels/cpu/update.h)

// One range as kernels::update() takes it. Ranges of one call do not overlap.
struct UpdateTask {
  float* p;
  const void* g;
  void* states[2];   // as many as state_count() says
  float* scales[2];  // StateType::int8
  void* out;         // or null; it may be g when both types are of one size
  uint64_t n;
  uint64_t first;  // index of p[0] in its flat; with StateType::int8 a multiple of kBlock
  uint64_t seed;   // for this range, in place of the step's
};

// Tasks of one launch; more are several.
inline constexpr size_t kUpdateTasks = 40;

// `scale`, which may be null, replaces the step's grad_scale.
cudaError_t update(const UpdateStep& step, const UpdateTask* tasks, size_t count, Type g_type,
                   StateType states, Type out_type, const StepScale* scale, cudaStream_t stream);

// --- Additions and conversions (kernels/cpu/accumulate.h)

struct CastTask {
  void* dst;
  const void* src;
  uint64_t n;
};

inline constexpr size_t kCastTasks = 112;  // of one launch

// Each task as kernels::convert() and kernels::accumulate().
cudaError_t convert(const CastTask* tasks, size_t count, Type dst_type, Type src_type,
                    cudaStream_t stream);
cudaError_t accumulate(const CastTask* tasks, size_t count, Type dst_type, Type src_type,
                       cudaStream_t stream);

// --- Block quantization (kernels/cpu/quant.h)

// QuantError is in device memory, and accumulated.
cudaError_t quantize(Encoded out, const void* in, Type type, size_t n, QuantFormat format,
                     uint64_t seed, uint64_t first_element, const void* minus, float* residual,
                     float beta, QuantError* error, cudaStream_t stream);

cudaError_t dequantize(void* out, Type type, ConstEncoded in, size_t n, QuantFormat format,
                       bool add, cudaStream_t stream);

// With more than kEncodedInputs inputs, `out` is written once for each so many.
inline constexpr size_t kEncodedInputs = 192;
cudaError_t dequantize_sum(float* out, bool accumulate, const ConstEncoded* in, size_t count,
                           float scale, size_t n, QuantFormat format, SquaresPieces* squares,
                           cudaStream_t stream);

// Up to kEncodedInputs inputs. More are cudaErrorInvalidValue, because no f32 array exists for
// partial sums.
cudaError_t dequantize_sum_quantize(Encoded out, const ConstEncoded* in, size_t count, float scale,
                                    size_t n, QuantFormat in_format, QuantFormat out_format,
                                    uint64_t seed, uint64_t first_element, QuantError* error,
                                    cudaStream_t stream);

}  // namespace meron::cuda

// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/simt.h"

namespace meron::cuda {
namespace {

// The clip coefficient is as StepOperation::agree_on_norm() computes it, in its order of
// operations.
MERON_KERNEL finish_norm_kernel(const SquaresPieces* total, double inverse_scale, double max_norm,
                                StepScale* out, double* norm_out) {
  const kernels::ExactSum sum(*total);
  const double norm = std::sqrt(sum.value()) * inverse_scale;
  const double fitting = max_norm / (norm + 1e-6);
  const double clip = max_norm > 0.0 && fitting < 1.0 ? fitting : 1.0;
  out->grad_scale = static_cast<float>(clip * inverse_scale);
  out->skip = norm - norm == 0.0 ? 0 : 1;
  if (norm_out != nullptr) *norm_out = norm;
}

}  // namespace

cudaError_t finish_norm(const SquaresPieces* total, double inverse_scale, double max_norm,
                        StepScale* out, double* norm, cudaStream_t stream) {
  return launch_thread<finish_norm_kernel>(stream, total, inverse_scale, max_norm, out, norm);
}

}  // namespace meron::cuda

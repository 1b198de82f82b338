// SPDX-License-Identifier: Apache-2.0
// Failures of CUDA in the form of meron/backend.h.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "meron/backend.h"

namespace meron::cuda {

// MERON_OK for cudaSuccess. Else writes what is known to *failure, and clears the thread's last
// error, which would otherwise appear in a later, correct call.
meron_status told(cudaError_t result, meron_backend_failure* failure);

void tell(meron_backend_failure* failure, const std::string& text);

}  // namespace meron::cuda

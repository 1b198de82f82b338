// SPDX-License-Identifier: Apache-2.0
// The two names of CUDA's that the kernels' interface needs.
#pragma once

#if defined(MERON_EMULATED_SIMT)
#include MERON_EMULATED_STREAM
#else
#include <cuda_runtime_api.h>
#endif

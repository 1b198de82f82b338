// SPDX-License-Identifier: Apache-2.0
// kernels/cuda/stream.h for the emulator: there is one stream, and what is enqueued is done.
#pragma once

using cudaStream_t = struct EmulatedStream*;
enum cudaError_t : int { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorUnknown = 999 };

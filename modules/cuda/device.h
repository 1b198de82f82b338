// SPDX-License-Identifier: Apache-2.0
// The tables of meron/backend.h.
#pragma once

#include <cuda_runtime_api.h>

#include "meron/backend.h"

namespace meron::cuda {

const meron_device_table& device_table();
const meron_kernel_table& kernel_table();

// Index of a handle's device in the process.
int index_of(void* device);

// The thread's current device is another one for as long as this lives.
class OnDevice {
 public:
  explicit OnDevice(int index);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  cudaError_t result() const { return result_; }

 private:
  int before_ = 0;
  bool changed_ = false;
  cudaError_t result_ = cudaSuccess;
};

}  // namespace meron::cuda

// SPDX-License-Identifier: Apache-2.0
// meron_backend_query: whether CUDA works in this process, and what it is.
#include <algorithm>
#include <cstring>
#include <string>

#include "modules/cuda/device.h"
#include "modules/cuda/failure.h"

namespace meron::cuda {
namespace {

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

meron_status check_driver(int* driver, meron_backend_failure* failure) {
  // 0 if there is none: then the runtime finds no libcuda.so.1.
  const meron_status known = told(cudaDriverGetVersion(driver), failure);
  if (known < 0) return known;
  if (*driver == 0) {
    tell(failure,
         "there is no driver of NVIDIA's (libcuda.so.1): on a machine with a GPU install it, in a "
         "container pass the GPU in (--gpus all)");
    return MERON_E_UNSUPPORTED;
  }
  // Within a major version newer runtimes work with older drivers.
  if (*driver / 1000 >= CUDART_VERSION / 1000) return MERON_OK;
  tell(failure, "the driver is of CUDA " + version_text(*driver) +
                    ", and this was built with CUDA " + version_text(CUDART_VERSION) +
                    ": install a newer driver, or build Meron with that CUDA");
  return MERON_E_UNSUPPORTED;
}

meron_status query(meron_backend* out, meron_backend_failure* failure) {
  int driver = 0;
  if (const meron_status status = check_driver(&driver, failure); status < 0) return status;
  int32_t count = 0;
  if (const meron_status status = device_table().count(&count, failure); status < 0) return status;
  if (count == 0) {
    tell(failure, "there is no GPU that this process may use (CUDA_VISIBLE_DEVICES may hide it)");
    return MERON_E_UNSUPPORTED;
  }
  static const std::string summary =
      "CUDA " + version_text(CUDART_VERSION) + ", driver of CUDA " + version_text(driver);
  meron_backend backend = {};
  backend.struct_size = sizeof(backend);
  backend.abi = MERON_BACKEND_ABI;
  backend.version = MERON_VERSION;
  backend.name = "cuda";
  backend.summary = summary.c_str();
  backend.device = &device_table();
  backend.kernels = &kernel_table();
  std::memcpy(out, &backend, std::min<size_t>(out->struct_size, sizeof(backend)));
  return MERON_OK;
}

}  // namespace
}  // namespace meron::cuda

extern "C" MERON_API meron_status meron_backend_query(uint32_t abi, meron_backend* out,
                                                      meron_backend_failure* failure) {
  if (abi != MERON_BACKEND_ABI) return MERON_E_VERSION;
  try {
    return meron::cuda::query(out, failure);
  } catch (const std::exception&) {
    return MERON_E_NO_MEMORY;
  }
}

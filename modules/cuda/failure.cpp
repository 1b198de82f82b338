// SPDX-License-Identifier: Apache-2.0
#include "modules/cuda/failure.h"

#include <algorithm>
#include <cstring>

namespace meron::cuda {
namespace {

// After these CUDA refuses every call of the process on the device.
bool is_broken(cudaError_t result) {
  switch (result) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorLaunchFailure:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContextIsDestroyed:
    case cudaErrorUnknown:
      return true;
    default:
      return false;
  }
}

meron_status status_of(cudaError_t result) {
  switch (result) {
    case cudaErrorMemoryAllocation:
      return MERON_E_NO_MEMORY;
    case cudaErrorInvalidValue:
    case cudaErrorInvalidDevice:
    case cudaErrorInvalidResourceHandle:
      return MERON_E_ARGUMENT;
    case cudaErrorNotSupported:
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
    case cudaErrorOperatingSystem:
      return MERON_E_UNSUPPORTED;
    case cudaErrorHostMemoryAlreadyRegistered:
      return MERON_E_DUPLICATE;
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorStreamCaptureInvalidated:
    case cudaErrorStreamCaptureImplicit:
      return MERON_E_STATE;
    default:
      return MERON_E_IO;
  }
}

}  // namespace

void tell(meron_backend_failure* failure, const std::string& text) {
  if (failure == nullptr) return;
  const size_t length = std::min(text.size(), sizeof(failure->text) - 1);
  std::memcpy(failure->text, text.data(), length);
  failure->text[length] = '\0';
}

meron_status told(cudaError_t result, meron_backend_failure* failure) {
  if (result == cudaSuccess) return MERON_OK;
  (void)cudaGetLastError();
  if (failure != nullptr) {
    failure->code = static_cast<int32_t>(result);
    failure->broken = is_broken(result) ? 1 : 0;
    failure->reserved_0 = 0;
    tell(failure, std::string(cudaGetErrorString(result)) + " (" + cudaGetErrorName(result) + ")");
  }
  return status_of(result);
}

}  // namespace meron::cuda

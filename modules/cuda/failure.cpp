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
    case cudaErrorCallRequiresNewerDriver:
    case cudaErrorCompatNotSupportedOnDevice:
    case cudaErrorStubLibrary:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorSystemNotReady:
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

// The remedy for a machine that is not set up, which CUDA's own text lacks. Both fit into the text
// of meron_backend_failure.
const char* advice_for(cudaError_t result) {
  switch (result) {
    case cudaErrorCallRequiresNewerDriver:
      return ": install a newer driver";
    case cudaErrorCompatNotSupportedOnDevice:
      return ": the libcuda.so.1 found is of CUDA's compatibility package, which this GPU does not "
             "take: let the driver's own be found";
    case cudaErrorStubLibrary:
      return ": the libcuda.so.1 found is one to link with: let the driver's own be found first "
             "(LD_LIBRARY_PATH)";
    case cudaErrorSystemDriverMismatch:
      return ": after an update of the driver start the machine again; in a container use the "
             "host's libcuda.so.1";
    case cudaErrorSystemNotReady:
      return ": where GPUs are joined by NVSwitch the fabric manager has to run (systemctl status "
             "nvidia-fabricmanager)";
    default:
      return "";
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
    tell(failure, std::string(cudaGetErrorString(result)) + " (" + cudaGetErrorName(result) + ")" +
                      advice_for(result));
  }
  return status_of(result);
}

}  // namespace meron::cuda

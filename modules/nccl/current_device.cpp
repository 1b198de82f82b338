// SPDX-License-Identifier: Apache-2.0
#include "modules/nccl/current_device.h"

#include <dlfcn.h>

#include <string>

#include "modules/nccl/failure.h"

namespace meron::nccl {
namespace {

// Of cuda.h: a result of 0 is success, a device a number, a context a
// pointer.
struct Driver {
  int (*init)(unsigned flags);
  int (*count)(int* out);
  int (*get)(int* device, int index);
  int (*get_current)(void** context);
  int (*retain)(void** context, int device);
  int (*release)(int device);
  int (*push)(void* context);
  int (*pop)(void** context);
};

template <class Function>
bool find_function(void* handle, const char* name, Function* out) {
  *out = reinterpret_cast<Function>(::dlsym(handle, name));
  return *out != nullptr;
}

// Null if there is no working driver.
const Driver* driver() {
  static const Driver* const found = []() -> const Driver* {
    void* const handle = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    static Driver made{};
    const bool complete = handle != nullptr && find_function(handle, "cuInit", &made.init) &&
                          find_function(handle, "cuDeviceGetCount", &made.count) &&
                          find_function(handle, "cuDeviceGet", &made.get) &&
                          find_function(handle, "cuCtxGetCurrent", &made.get_current) &&
                          find_function(handle, "cuDevicePrimaryCtxRetain", &made.retain) &&
                          find_function(handle, "cuDevicePrimaryCtxRelease_v2", &made.release) &&
                          find_function(handle, "cuCtxPushCurrent_v2", &made.push) &&
                          find_function(handle, "cuCtxPopCurrent_v2", &made.pop);
    return complete && made.init(0) == 0 ? &made : nullptr;
  }();
  return found;
}

}  // namespace

meron_status DeviceContext::open(int index, meron_backend_failure* failure) {
  const Driver* const use = driver();
  int count = 0;
  if (use == nullptr || use->count(&count) != 0 || count == 0) return MERON_OK;
  if (index >= count) {
    tell(failure, "there is no device " + std::to_string(index) + ": this process has " +
                      std::to_string(count));
    return MERON_E_ARGUMENT;
  }
  // The context of the current device lives as long as whoever made it current keeps it.
  if (index < 0 && use->get_current(&context_) == 0 && context_ != nullptr) return MERON_OK;
  const int wanted = index < 0 ? 0 : index;
  int result = use->get(&device_, wanted);
  if (result == 0) result = use->retain(&context_, device_);
  if (result != 0) {
    context_ = nullptr;
    tell(failure,
         "the driver does not open device " + std::to_string(wanted) + ": its result is " +
             std::to_string(result),
         result);
    return MERON_E_IO;
  }
  retained_ = true;
  return MERON_OK;
}

DeviceContext::~DeviceContext() {
  if (retained_) (void)driver()->release(device_);
}

CurrentDevice::CurrentDevice(const DeviceContext& device)
    : pushed_(device.context_ != nullptr && driver()->push(device.context_) == 0) {}

CurrentDevice::~CurrentDevice() {
  void* popped = nullptr;
  if (pushed_) (void)driver()->pop(&popped);
}

}  // namespace meron::nccl

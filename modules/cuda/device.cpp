// SPDX-License-Identifier: Apache-2.0
#include "modules/cuda/device.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>

#include "modules/cuda/failure.h"

namespace meron::cuda {

OnDevice::OnDevice(int index) {
  if (cudaGetDevice(&before_) != cudaSuccess) before_ = index;
  if (before_ != index) result_ = cudaSetDevice(index);
  changed_ = before_ != index;
}

OnDevice::~OnDevice() {
  if (changed_) (void)cudaSetDevice(before_);
}

namespace {

struct Gpu {
  int index = 0;
  cudaMemPool_t pool = nullptr;  // of the module's own
};

Gpu& gpu_of(void* device) {
  return *static_cast<Gpu*>(device);
}

cudaStream_t stream_of(void* stream) {
  return static_cast<cudaStream_t>(stream);
}

cudaEvent_t event_of(void* event) {
  return static_cast<cudaEvent_t>(event);
}

// Runs `call` with the device as the current one.
template <class Call>
meron_status on(void* device, meron_backend_failure* failure, Call call) {
  const OnDevice current(gpu_of(device).index);
  return told(current.result() != cudaSuccess ? current.result() : call(), failure);
}

meron_status count(int32_t* out, meron_backend_failure* failure) {
  int found = 0;
  const cudaError_t result = cudaGetDeviceCount(&found);
  *out = found;
  if (result == cudaErrorNoDevice) {
    (void)cudaGetLastError();
    *out = 0;
    return MERON_OK;
  }
  return told(result, failure);
}

// A pool keeps freed memory for later allocations: without a threshold, each wait for a stream
// would return all of it to the driver.
cudaError_t make_pool(int index, cudaMemPool_t* out) {
  cudaMemPoolProps props = {};
  props.allocType = cudaMemAllocationTypePinned;
  props.location.type = cudaMemLocationTypeDevice;
  props.location.id = index;
  const cudaError_t made = cudaMemPoolCreate(out, &props);
  if (made != cudaSuccess) return made;
  uint64_t keeps = UINT64_MAX;
  return cudaMemPoolSetAttribute(*out, cudaMemPoolAttrReleaseThreshold, &keeps);
}

meron_status open(void** out, int32_t index, meron_backend_failure* failure) {
  auto gpu = std::unique_ptr<Gpu>(new (std::nothrow) Gpu);
  if (gpu == nullptr) return MERON_E_NO_MEMORY;
  gpu->index = index;
  if (index < 0) {
    const meron_status status = told(cudaGetDevice(&gpu->index), failure);
    if (status < 0) return status;
  }
  const meron_status status =
      on(gpu.get(), failure, [&] { return make_pool(gpu->index, &gpu->pool); });
  if (status < 0) return status;
  *out = gpu.release();
  return MERON_OK;
}

void close(void* device) {
  Gpu* const gpu = &gpu_of(device);
  {
    const OnDevice current(gpu->index);
    (void)cudaMemPoolDestroy(gpu->pool);  // after all of its memory has been freed
  }
  delete gpu;
}

meron_status describe(meron_device_info* out, void* device, meron_backend_failure* failure) {
  const int index = gpu_of(device).index;
  meron_device_info info = {};
  info.struct_size = sizeof(info);
  info.index = index;
  const meron_status status = on(device, failure, [&] {
    cudaDeviceProp properties = {};
    size_t free = 0, total = 0;
    cudaError_t result = cudaGetDeviceProperties(&properties, index);
    if (result == cudaSuccess) result = cudaMemGetInfo(&free, &total);
    if (result == cudaSuccess) {
      result = cudaDeviceGetPCIBusId(info.bus, static_cast<int>(sizeof(info.bus)), index);
    }
    std::memcpy(info.name, properties.name, strnlen(properties.name, sizeof(info.name) - 1));
    info.memory_bytes = total;
    info.free_bytes = free;
    info.capability = static_cast<uint32_t>(properties.major * 10 + properties.minor);
    info.multiprocessors = static_cast<uint32_t>(properties.multiProcessorCount);
    return result;
  });
  if (status == MERON_OK) std::memcpy(out, &info, std::min<size_t>(out->struct_size, sizeof(info)));
  return status;
}

meron_status allocate(void** out, void* device, uint64_t bytes, void* stream,
                      meron_backend_failure* failure) {
  Gpu& gpu = gpu_of(device);
  const auto ask = [&] { return cudaMallocFromPoolAsync(out, bytes, gpu.pool, stream_of(stream)); };
  meron_status status = on(device, failure, ask);
  if (status != MERON_E_NO_MEMORY) return status;
  // The pool's free memory may be in pieces that are too small.
  status = on(device, failure, [&] {
    cudaError_t result = cudaStreamSynchronize(stream_of(stream));
    if (result == cudaSuccess) result = cudaMemPoolTrimTo(gpu.pool, 0);
    return result;
  });
  return status < 0 ? status : on(device, failure, ask);
}

meron_status release(void* device, void* data, void* stream, meron_backend_failure* failure) {
  return on(device, failure, [&] { return cudaFreeAsync(data, stream_of(stream)); });
}

meron_status pin(void* device, void* data, uint64_t bytes, meron_backend_failure* failure) {
  return on(device, failure,
            [&] { return cudaHostRegister(data, bytes, cudaHostRegisterPortable); });
}

void unpin(void* device, void* data) {
  (void)on(device, nullptr, [&] { return cudaHostUnregister(data); });
}

meron_status locate(meron_memory_kind* kind, int32_t* index, void* device, const void* data,
                    meron_backend_failure* failure) {
  return on(device, failure, [&] {
    cudaPointerAttributes found = {};
    const cudaError_t result = cudaPointerGetAttributes(&found, data);
    if (result != cudaSuccess) return result;
    *index = found.device;
    *kind = found.type == cudaMemoryTypeDevice    ? MERON_MEMORY_DEVICE
            : found.type == cudaMemoryTypeManaged ? MERON_MEMORY_MANAGED
            : found.type == cudaMemoryTypeHost    ? MERON_MEMORY_PINNED
                                                  : MERON_MEMORY_HOST;
    return cudaSuccess;
  });
}

meron_status stream_create(void** out, void* device, uint32_t urgent,
                           meron_backend_failure* failure) {
  return on(device, failure, [&] {
    int least = 0, greatest = 0;
    cudaError_t result = cudaDeviceGetStreamPriorityRange(&least, &greatest);
    if (result != cudaSuccess) return result;
    cudaStream_t made = nullptr;
    result =
        cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking, urgent != 0 ? greatest : least);
    *out = made;
    return result;
  });
}

void stream_destroy(void* device, void* stream) {
  (void)on(device, nullptr, [&] { return cudaStreamDestroy(stream_of(stream)); });
}

meron_status stream_check(void* device, void* stream, meron_backend_failure* failure) {
  int index = gpu_of(device).index;
  cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
  const meron_status status = on(device, failure, [&] {
    cudaError_t result = cudaStreamIsCapturing(stream_of(stream), &capturing);
    // The default stream is that of whichever device is current.
#if CUDART_VERSION >= 12080
    if (result == cudaSuccess && capturing == cudaStreamCaptureStatusNone && stream != nullptr) {
      result = cudaStreamGetDevice(stream_of(stream), &index);
    }
#endif
    return result;
  });
  if (status < 0) return status;
  if (index != gpu_of(device).index) {
    tell(failure, "it is a stream of device " + std::to_string(index));
    return MERON_E_ARGUMENT;
  }
  if (capturing == cudaStreamCaptureStatusNone) return MERON_OK;
  tell(failure,
       "the stream is being captured into a graph: call Meron before the capture begins or after "
       "it has ended");
  return MERON_E_STATE;
}

meron_status stream_synchronize(void* device, void* stream, meron_backend_failure* failure) {
  return on(device, failure, [&] { return cudaStreamSynchronize(stream_of(stream)); });
}

meron_status event_create(void** out, void* device, meron_backend_failure* failure) {
  return on(device, failure, [&] {
    cudaEvent_t made = nullptr;
    const cudaError_t result = cudaEventCreateWithFlags(&made, cudaEventDisableTiming);
    *out = made;
    return result;
  });
}

void event_destroy(void* device, void* event) {
  (void)on(device, nullptr, [&] { return cudaEventDestroy(event_of(event)); });
}

meron_status event_record(void* device, void* event, void* stream, meron_backend_failure* failure) {
  return on(device, failure, [&] { return cudaEventRecord(event_of(event), stream_of(stream)); });
}

meron_status event_query(void* /*device*/, void* event, meron_backend_failure* failure) {
  const cudaError_t result = cudaEventQuery(event_of(event));
  if (result != cudaErrorNotReady) return told(result, failure);
  (void)cudaGetLastError();
  return MERON_IN_PROGRESS;
}

meron_status stream_wait(void* device, void* stream, void* event, meron_backend_failure* failure) {
  return on(device, failure,
            [&] { return cudaStreamWaitEvent(stream_of(stream), event_of(event), 0); });
}

meron_status stream_notify(void* device, void* stream, meron_device_notify_fn notify, void* user,
                           meron_backend_failure* failure) {
  return on(device, failure, [&] { return cudaLaunchHostFunc(stream_of(stream), notify, user); });
}

meron_status copy(void* device, void* to, const void* from, uint64_t bytes, void* stream,
                  meron_backend_failure* failure) {
  return on(device, failure,
            [&] { return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_of(stream)); });
}

meron_status fill(void* device, void* to, uint8_t value, uint64_t bytes, void* stream,
                  meron_backend_failure* failure) {
  return on(device, failure, [&] { return cudaMemsetAsync(to, value, bytes, stream_of(stream)); });
}

}  // namespace

int index_of(void* device) {
  return gpu_of(device).index;
}

const meron_device_table& device_table() {
  static const meron_device_table table = {
      .struct_size = sizeof(meron_device_table),
      .reserved_0 = 0,
      .count = count,
      .open = open,
      .close = close,
      .describe = describe,
      .allocate = allocate,
      .release = release,
      .pin = pin,
      .unpin = unpin,
      .locate = locate,
      .stream_create = stream_create,
      .stream_destroy = stream_destroy,
      .stream_check = stream_check,
      .stream_synchronize = stream_synchronize,
      .event_create = event_create,
      .event_destroy = event_destroy,
      .event_record = event_record,
      .event_query = event_query,
      .stream_wait = stream_wait,
      .stream_notify = stream_notify,
      .copy = copy,
      .fill = fill,
  };
  return table;
}

}  // namespace meron::cuda

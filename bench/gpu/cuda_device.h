// SPDX-License-Identifier: Apache-2.0
// A CUDA device as a bench uses it: failures as exceptions, the time of streams, and memory.
#pragma once

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <cstddef>
#include <stdexcept>

namespace meron::bench {

inline void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  throw std::runtime_error(fmt::format("{} failed: {}", what, cudaGetErrorString(error)));
}

class Event {
 public:
  Event() { check(cudaEventCreate(&event_), "making an event"); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() { (void)cudaEventDestroy(event_); }
  void record(cudaStream_t stream) { check(cudaEventRecord(event_, stream), "recording"); }
  double seconds_since(const Event& other) const {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, other.event_, event_), "measuring");
    return milliseconds * 1e-3;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

// All device memory of the benchmark, allocated anew for each row.
class Pool {
 public:
  explicit Pool(size_t bytes) : bytes_(bytes) {
    check(cudaMalloc(&memory_, bytes), "allocating memory");
  }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool() { (void)cudaFree(memory_); }

  size_t bytes() const { return bytes_; }
  void clear() { used_ = 0; }
  template <class T = void>
  T* take(size_t bytes) {
    const size_t begin = used_;
    used_ += (bytes + kLine - 1) / kLine * kLine;
    if (used_ > bytes_) throw std::runtime_error("the device has too little memory");
    return reinterpret_cast<T*>(static_cast<char*>(memory_) + begin);
  }
  static constexpr size_t kLine = 512;

 private:
  void* memory_ = nullptr;
  size_t bytes_, used_ = 0;
};

}  // namespace meron::bench

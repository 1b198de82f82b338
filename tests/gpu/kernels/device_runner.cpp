// SPDX-License-Identifier: Apache-2.0
// The cases of tests/unit/kernels_cuda on a device.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "runner.h"

namespace meron::cuda {
namespace {

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s failed: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

// Why nothing can run here; empty where it can.
std::string why_unusable() {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess) return std::string("no CUDA device: ") + cudaGetErrorString(error);
  if (devices == 0) return "no CUDA device";
  int major = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), "asking the device");
  if (major < 8) return "the device is older than sm_80";
  return {};
}

}  // namespace

// Not the default stream, which waits for others.
cudaStream_t stream() {
  static cudaStream_t the_stream = [] {
    cudaStream_t made = nullptr;
    check(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "making a stream");
    return made;
  }();
  return the_stream;
}

void* allocate(size_t bytes) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, bytes), "allocating");
  return memory;
}

void release(void* memory) {
  check(cudaFree(memory), "freeing");
}

void copy_in(void* to, const void* from, size_t bytes) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream()), "copying");
  check(cudaStreamSynchronize(stream()), "a kernel or copy");
}

void copy_out(void* to, const void* from, size_t bytes) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream()), "copying");
  check(cudaStreamSynchronize(stream()), "a kernel or copy");
}

int run_tests(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (const std::string reason = why_unusable(); !reason.empty()) {
    std::printf("skipped: %s\n", reason.c_str());
    return 77;
  }
  return RUN_ALL_TESTS();
}

}  // namespace meron::cuda

int main(int argc, char** argv) {
  return meron::cuda::run_tests(argc, argv);
}

// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>

#include "runner.h"

namespace meron::cuda {

cudaStream_t stream() {
  return nullptr;
}
void* allocate(size_t bytes) {
  return std::aligned_alloc(256, (bytes + 255) / 256 * 256);
}
void release(void* memory) {
  std::free(memory);
}
void copy_in(void* to, const void* from, size_t bytes) {
  std::memcpy(to, from, bytes);
}
void copy_out(void* to, const void* from, size_t bytes) {
  std::memcpy(to, from, bytes);
}

}  // namespace meron::cuda

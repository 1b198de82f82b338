// SPDX-License-Identifier: Apache-2.0
// Many arrays in one launch: the tasks travel as a kernel's parameters, cut into pieces of a size.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/type.h"
#include "kernels/cuda/simt.h"

namespace meron::cuda {

template <class Task, size_t kTasks>
struct Tasks {
  // Task t has the pieces from first_piece[t] on, up to first_piece[t + 1]; what is not used of
  // the array holds the number of all. (2^31 pieces are more than a device has memory for.)
  uint32_t first_piece[kTasks + 1];
  Task task[kTasks];

  MERON_HOST_DEVICE uint32_t pieces() const { return first_piece[kTasks]; }
};

// Calls launch(Tasks) for every kTasks tasks that are not empty, until one fails. `piece`:
// elements.
template <size_t kTasks, class Task, class Launch>
cudaError_t for_tasks(const Task* tasks, size_t count, uint64_t piece, Launch launch) {
  static_assert(sizeof(Tasks<Task, kTasks>) <= 3840, "a kernel has 4 KiB of parameters");
  size_t next = 0;
  while (next < count) {
    Tasks<Task, kTasks> some{};
    uint32_t pieces = 0;
    size_t t = 0;
    for (; next < count && t < kTasks; ++next) {
      const uint64_t n = tasks[next].n;
      if (n == 0) continue;
      some.task[t] = tasks[next];
      some.first_piece[t++] = pieces;
      pieces += static_cast<uint32_t>(n / piece + (n % piece != 0 ? 1 : 0));
    }
    for (; t <= kTasks; ++t) some.first_piece[t] = pieces;
    if (const cudaError_t error = launch(some); error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace meron::cuda

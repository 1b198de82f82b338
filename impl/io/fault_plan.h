// SPDX-License-Identifier: Apache-2.0
// Faults of storage for tests. Both backends pass each result of the kernel through
// with_fault(), which answers as a failing device: the transfer was made, but an error is reported.
// Functions that change files and directories otherwise call file_fault() before the system call.
// Only builds with the CMake option MERON_FAULT_POINTS have faults.
//
// A plan is a list "read:3:EIO,write:2+:ENOSPC,read:*:short,fsync:1:EIO": of the process' calls
// `read`, `write`, `fsync`, `rename`, `open`, `mkdir` or `reap`, the third, the second and all
// later, or all; and an errno's name, `eintr`, `eagain`, `hang`, or of a transfer `short` (half of
// it was moved). The first entry that matches counts. The plan is that of the environment's
// MERON_IO_FAULTS until set_io_faults.
//
// A transfer that hangs has been made, but neither it nor later completions of the same thread of
// the backend are reported, until the plan is replaced or kHangNs have passed. Another call that
// hangs is made after that. A `reap`, by which io_uring's backend learns of the end of a request to
// the kernel, never learns of it if it fails: as if the drive answered never.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace meron {

constexpr bool have_fault_points() {
#ifdef MERON_FAULT_POINTS
  return true;
#else
  return false;
#endif
}

inline constexpr int64_t kHangNs = 3'000'000'000;

// The error of the plan in the environment: MERON_E_PARSE. Ok without fault points.
Status check_io_faults();

// Replaces the plan ("": no faults) and counts from 1 again. MERON_E_UNSUPPORTED without fault
// points. Thread-safe, but either plan may apply to transfers in flight.
Status set_io_faults(std::string_view plan);

// The result to use for a read or write of `requested` bytes: bytes moved, or -errno.
int64_t planned_fault(bool write, uint64_t requested, int64_t result);
inline int64_t with_fault([[maybe_unused]] bool write, [[maybe_unused]] uint64_t requested,
                          int64_t result) {
  if constexpr (have_fault_points()) return planned_fault(write, requested, result);
  return result;
}

enum class FileCall { fsync, rename, open, mkdir, reap };
// The errno with which the call fails; it is then not made. 0: make it.
int planned_file_fault(FileCall call);
inline int file_fault([[maybe_unused]] FileCall call) {
  if constexpr (have_fault_points()) return planned_file_fault(call);
  return 0;
}

}  // namespace meron

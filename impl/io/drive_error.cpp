// SPDX-License-Identifier: Apache-2.0
#include "io/drive_error.h"

#include <fmt/format.h>

#include "base/clock.h"

namespace meron {

Error drive_silent_error(const std::string& path, int64_t timeout_ns) {
  return Error(MERON_E_TIMEOUT,
               fmt::format("the drive of {} has not answered for {} s", path,
                           static_cast<double>(timeout_ns) / kNanosPerSecond),
               "look at the drive and the kernel's log, and restart the job from a checkpoint; or "
               "raise the timeout")
      .on(path);
}

Error drive_changed_error(const std::string& path, const ChangedBytes& changed,
                          const std::string& tensor, const std::string& slice) {
  return Error(MERON_E_CORRUPT,
               fmt::format("{}: the {} bytes at offset {} are not what was written there: their "
                           "CRC-32C is {:08x}, not {:08x}; they are {}",
                           path, changed.bytes, changed.offset, changed.found, changed.expected,
                           slice),
               "the drive or its memory has changed data: nothing was computed with it. Check the "
               "drive, and go on from the last checkpoint")
      .on(tensor);
}

}  // namespace meron

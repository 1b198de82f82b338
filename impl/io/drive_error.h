// SPDX-License-Identifier: Apache-2.0
// What is said of a drive that does not do its work, in the same words wherever it is noticed.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace meron {

// A transfer, waited for as long as the timeout, has not ended: MERON_E_TIMEOUT. `path` is the
// file's, or its folder.
Error drive_silent_error(const std::string& path, int64_t timeout_ns);

// Bytes that were read are not those that were written: MERON_E_CORRUPT. `tensor` is whose they
// are, `slice` which of its values.
struct ChangedBytes {
  uint64_t offset = 0;  // in the file
  uint64_t bytes = 0;
  uint32_t found = 0, expected = 0;  // CRC-32C
};
Error drive_changed_error(const std::string& path, const ChangedBytes& changed,
                          const std::string& tensor, const std::string& slice);

}  // namespace meron

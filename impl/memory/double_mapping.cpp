// SPDX-License-Identifier: Apache-2.0
#include "memory/double_mapping.h"

#include "memory/sanitizer.h"

namespace meron {

Result<DoubleMapping> DoubleMapping::map(const MemoryFile& file) {
  DoubleMapping both;
  MERON_ASSIGN(both.writable_, Mapping::map_file(file.fd(), file.size(), Access::read_write));
  if (!kThreadSanitizer) {
    MERON_ASSIGN(both.readable_, Mapping::map_file(file.fd(), file.size(), Access::read));
  }
  return both;
}

void DoubleMapping::forbid(uint64_t offset, uint64_t bytes) const {
  forbid_access(writable_.data() + offset, bytes);
  if (readable_.valid()) forbid_access(readable_.data() + offset, bytes);
}

void DoubleMapping::allow(uint64_t offset, uint64_t bytes) const {
  allow_access(writable_.data() + offset, bytes);
  if (readable_.valid()) allow_access(readable_.data() + offset, bytes);
}

}  // namespace meron

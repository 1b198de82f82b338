// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "os/mapping.h"
#include "os/memory_file.h"

namespace meron {

// A memory file mapped twice: writable for the engine, and read-only for the views that users get,
// so that a write through a view faults at the writer and not in a peer's numbers. The pages are
// the same: the second mapping takes address space and page tables. Under ThreadSanitizer both are
// one address, because it finds races by address.
class DoubleMapping {
 public:
  static Result<DoubleMapping> map(const MemoryFile& file);

  Mapping& writable() { return writable_; }
  const Mapping& readable() const { return readable_.valid() ? readable_ : writable_; }
  size_t size() const { return writable_.size(); }

  // Under AddressSanitizer: from now on, touching the range at either address is reported as an
  // error, or is not.
  void forbid(uint64_t offset, uint64_t bytes) const;
  void allow(uint64_t offset, uint64_t bytes) const;

 private:
  Mapping writable_;
  Mapping readable_;  // not valid under ThreadSanitizer
};

}  // namespace meron

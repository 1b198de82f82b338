// SPDX-License-Identifier: Apache-2.0
// Private to io/: the memory that the kernel has pinned once instead of at each request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "base/result.h"
#include "io/io_backend.h"
#include "os/io_ring.h"

namespace meron {

// Ranges of memory in a ring. Used by the ring's thread alone.
class RegisteredBuffers {
 public:
  explicit RegisteredBuffers(IoShared& shared) : shared_(shared) {}

  // Returns true if all of it was registered. After std::bad_alloc the range works unregistered.
  bool add(IoRing& ring, std::byte* data, uint64_t bytes);
  void remove(IoRing& ring, std::byte* data);
  // Of memory within one slot of a range; else IoRing::kNone.
  uint32_t slot_of(const std::byte* data, uint64_t bytes) const;

 private:
  // In as many slots as the kernel's limit per slot requires.
  struct Range {
    uint64_t bytes = 0;
    std::vector<uint32_t> slots;
  };

  void tell_unregistered(const Error& error, uint64_t bytes);

  IoShared& shared_;
  std::map<const std::byte*, Range, std::less<>> ranges_;
  bool warned_ = false;
};

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
// Buffers whose bytes were moved to a rank's file, to free their memory until they are needed
// again.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/counters.h"
#include "base/result.h"
#include "io/storage.h"
#include "memory/arena.h"

namespace meron {

class ParkedBuffers {
 public:
  // Writes all bytes of `buffers`, which stay the caller's, with a checksum per 64 KiB in memory.
  // Waits for the drive: for each piece at most the timeout. Errors: MERON_E_NO_SPACE,
  // MERON_E_TIMEOUT, what the drive says.
  static Result<std::unique_ptr<ParkedBuffers>> write(Storage& storage, Counters& counters,
                                                      int64_t timeout_ns,
                                                      const std::vector<Buffer>& buffers);
  // Gives the room back.
  ~ParkedBuffers();
  ParkedBuffers(const ParkedBuffers&) = delete;
  ParkedBuffers& operator=(const ParkedBuffers&) = delete;

  // Reads them into `buffers`, of the same sizes in the same order; may be tried again. Also
  // MERON_E_CORRUPT. After MERON_E_TIMEOUT the drive may still write to their memory: they must not
  // be released.
  Status read(const std::vector<Buffer>& buffers);
  uint64_t bytes() const { return bytes_; }

 private:
  ParkedBuffers(Storage& storage, Counters& counters, int64_t timeout_ns)
      : storage_(storage), counters_(counters), timeout_ns_(timeout_ns) {}
  Status move(bool out, const std::vector<Buffer>& buffers);

  Storage& storage_;
  Counters& counters_;
  const int64_t timeout_ns_;
  std::vector<Extent> extents_;  // by buffer
  uint64_t bytes_ = 0;
  bool held_ = false;  // an abandoned transfer has not ended
};

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
// This rank's part of a flat's values, if it resides outside the shared segment between gathers. It
// is staged there for a gather or an update, and stored again if it has changed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.h"

namespace meron {

class Shard {
 public:
  Shard() = default;
  virtual ~Shard() = default;
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  // Begins to read the values unless that has begun; never waits. Returns true once they are in
  // memory. An error of a transfer, also of an earlier write, stays: MERON_E_CORRUPT if the values
  // differ from those that were written.
  virtual Result<bool> stage() = 0;
  // The same for a change; false while a transfer is under way. `whole`: all are written, so
  // none has to be read.
  virtual Result<bool> open(bool whole) = 0;
  // Writes the values, which have changed in memory, to their tier.
  virtual void store() = 0;
  // Releases their room on the tier, before anything was stored there.
  virtual void give_back() = 0;
  // Their memory is released. Not while busy().
  virtual void forget() = 0;
  // Copies bytes [offset, offset + bytes) of the values as they were last stored, whether they are
  // in memory or not. Waits for a transfer under way; releases the lock meanwhile. Not between
  // open() and store(). Errors as stage(); MERON_E_TIMEOUT.
  virtual Status read(uint64_t offset, uint64_t bytes, std::byte* out) = 0;

  virtual bool busy() const = 0;
  // Sleeps until the transfer under way has ended, at most `timeout_ns`; at once where none is.
  virtual void wait(int64_t timeout_ns) const = 0;
  // "1 read of /local is under way", for messages.
  virtual std::string describe() const = 0;
};

}  // namespace meron

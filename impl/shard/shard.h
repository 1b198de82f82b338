// SPDX-License-Identifier: Apache-2.0
// What this rank holds of a flat's values where they lie elsewhere between gathers: staged in
// the window for a gather or an update, and taken back when they have changed.
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

  // Never waits, and begins to read where that has not begun. Whether they are in memory. An error
  // is that of a transfer, also of an earlier write, and stays: MERON_E_CORRUPT where they are not
  // what was written.
  virtual Result<bool> stage() = 0;
  // The same for a change, which no transfer may be under way at. `whole`: all of them will be
  // written, so that nothing has to be read.
  virtual Result<bool> open(bool whole) = 0;
  // They have changed in memory, and go where they lie.
  virtual void store() = 0;
  // Gives their room back, before anything was stored there.
  virtual void give_back() = 0;
  // The memory is given back. Not while busy().
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

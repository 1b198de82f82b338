// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "base/result.h"

namespace meron {

// One requested read or write. It ends once. Thread-safe.
class IoTicket {
 public:
  explicit IoTicket(uint64_t bytes);

  bool done() const { return ended_.load(std::memory_order_acquire) != 0; }

  // Waits until it has ended, at most `timeout_ns` (negative: without bound); whether it has. In a
  // fork of the requesting process does not wait.
  bool wait(int64_t timeout_ns) const;

  // How it ended: the first error, which names path, offset and errno. MERON_E_STATE before that;
  // MERON_E_FORKED in a fork, where what had not ended by then never ends.
  Status status() const;

  const uint64_t bytes;  // requested

  // For the engine, once. `unsaid`: the code of an error that there was no memory for.
  void end(std::optional<Error> error, meron_status unsaid = MERON_OK);

 private:
  std::atomic<uint32_t> ended_{0};  // the next two do not change once this is 1
  std::optional<Error> error_;
  meron_status unsaid_ = MERON_OK;
  const int32_t owner_pid_;
};

}  // namespace meron

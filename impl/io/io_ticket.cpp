// SPDX-License-Identifier: Apache-2.0
#include "io/io_ticket.h"

#include <utility>

#include "base/clock.h"
#include "base/held.h"
#include "os/futex.h"
#include "os/process.h"

namespace meron {

IoTicket::IoTicket(uint64_t bytes) : bytes(bytes), owner_pid_(process_id()) {}

bool IoTicket::wait(int64_t timeout_ns) const {
  if (!done()) expect_unheld("a wait for a drive");
  const Deadline deadline = timeout_ns < 0 ? Deadline::never() : Deadline::after(timeout_ns);
  while (!done()) {
    const int64_t left = deadline.remaining();
    if (left == 0 || process_id() != owner_pid_) return false;
    futex_wait(&ended_, 0, left);
  }
  return true;
}

Status IoTicket::status() const {
  if (done()) {
    if (error_) return *error_;
    if (unsaid_ == MERON_OK) return Ok{};
    return Error(unsaid_, "a request to a drive failed, and there was no memory left to say how",
                 "free memory, and look at the kernel's log");
  }
  if (process_id() != owner_pid_) {
    return Error(MERON_E_FORKED, "the transfer belongs to the process that this one is a fork of");
  }
  return Error(MERON_E_STATE, "the transfer has not ended", "wait for it first");
}

void IoTicket::end(std::optional<Error> error, meron_status unsaid) {
  error_ = std::move(error);
  unsaid_ = unsaid;
  ended_.store(1, std::memory_order_release);
  futex_wake(&ended_, kWakeAll);
}

}  // namespace meron

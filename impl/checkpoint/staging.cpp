// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/staging.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "io/drive_error.h"
#include "os/host.h"

namespace meron::checkpoint {
namespace {

constexpr int64_t kCancelCheckNs = 50 * kNanosPerMilli;
constexpr int64_t kLeaveNs = 5 * kNanosPerSecond;

// There the transfer never ends.
bool is_forked(const IoTicket& transfer) {
  const Status status = transfer.status();
  return !status.ok() && status.error().code() == MERON_E_FORKED;
}

}  // namespace

Result<std::shared_ptr<Staging>> Staging::create(std::shared_ptr<IoEngine> engine,
                                                 uint64_t block_bytes, size_t blocks) {
  if (block_bytes == 0 || block_bytes % page_size() != 0 || blocks == 0 ||
      block_bytes > SIZE_MAX / 2 / blocks) {
    return Error(MERON_E_ARGUMENT,
                 fmt::format("staging of {} blocks of {} bytes", blocks, block_bytes),
                 fmt::format("choose one block or more of a multiple of {} bytes", page_size()));
  }
  std::shared_ptr<Staging> staging(new Staging(std::move(engine), block_bytes, blocks));
  const uint64_t bytes = block_bytes * blocks;
  MERON_ASSIGN(staging->memory_, PrivateMemory::create(bytes));
  (void)staging->engine_->register_buffer(staging->memory_.data(), bytes);
  return staging;
}

Staging::~Staging() {
  if (!memory_.valid()) return;
  engine_->unregister_buffer(memory_.data());
  const Deadline deadline = Deadline::after(kLeaveNs);
  for (const auto& transfer : transfers_) {
    if (!transfer || transfer->wait(deadline.remaining())) continue;
    // The drive, or the engine's thread, may still use the memory.
    (void)new PrivateMemory(std::move(memory_));
    return;
  }
}

Staging::Block Staging::next() {
  const size_t number = next_;
  next_ = (next_ + 1) % blocks();
  return {.data = memory_.data() + number * block_bytes_, .number = number};
}

Status wait_for(const IoTicket& transfer, const std::string& path, int64_t timeout_ns,
                const std::atomic<bool>& cancelled) {
  const Deadline deadline = timeout_ns < 0 ? Deadline::never() : Deadline::after(timeout_ns);
  while (!transfer.wait(std::min(deadline.remaining(), kCancelCheckNs))) {
    if (cancelled.load(std::memory_order_relaxed)) {
      return Error(MERON_E_CANCELLED, "the work on the file was cancelled").on(path);
    }
    if (is_forked(transfer)) return transfer.status();
    if (deadline.passed()) return drive_silent_error(path, timeout_ns);
  }
  return Ok{};
}

}  // namespace meron::checkpoint

// SPDX-License-Identifier: Apache-2.0
// Posting and closing. Contexts are opened in opening.cpp, groups made in groups.cpp, operations
// begun in operations.cpp, and waited for in waiting.cpp.
#include "engine/context.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "engine/device_watch.h"
#include "engine/handles.h"
#include "engine/progress_thread.h"
#include "os/file.h"
#include "os/process.h"
#include "param/device_group.h"
#include "transport/flight_record.h"

namespace meron {
namespace {

// How long a rank that is a whole ring ahead sleeps, with the lock held, without a look at its
// peers.
constexpr int64_t kRoomSleepNs = 5 * kNanosPerMilli;

Error closed_error() {
  return Error(MERON_E_CLOSED, "the context was closed", "open another one");
}

}  // namespace

Context::Context(OpenOptions options) : options_(std::move(options)) {}

Result<std::shared_ptr<Context>> Context::open(OpenOptions options) {
  std::shared_ptr<Context> context(new Context(std::move(options)));
  MERON_TRY(context->start());
  return context;
}

Result<uint64_t> Context::post(Channel& channel, const Call& call) {
  if (!channel.has_room()) MERON_TRY(await_room_locked(channel));
  auto posted = channel.post(call);
  if (!posted.ok()) record_failure_locked(posted.error());
  return posted;
}

// The peers that are behind may be waiting for operations of this rank, so these go on meanwhile.
Status Context::await_room_locked(Channel& channel) {
  const Deadline deadline = rank_->deadline();
  while (!channel.has_room()) {
    MERON_TRY(channel.status());
    if (closing_.load()) return closed_error();
    progress_locked();
    if (const Status status = channel.check_stragglers(deadline); !status.ok()) {
      record_failure_locked(status.error());
      return status;
    }
    transport_->pump();
    Transport::Sleeper sleeper(*transport_);
    sleeper.sleep(std::min(deadline.remaining(), kRoomSleepNs));
  }
  return Ok{};
}

void Context::record_failure_locked(const Error& error) {
  const bool broken = error.code() <= MERON_E_TIMEOUT && error.code() > MERON_E_FORKED;
  const char* folder = std::getenv("MERON_FLIGHT_RECORD");
  if (!broken || folder == nullptr || failure_recorded_) return;
  failure_recorded_ = true;
  const std::string path = fmt::format("{}/meron-flight-rank{}.json", folder, transport_->rank());
  const Status written = write_file(path, flight_record_json(world()));
  if (!written.ok()) {
    // The failure itself is what the caller must hear of; this is only why its record is missing.
    std::fprintf(stderr, "meron: no flight record: %s\n", written.error().info().what.c_str());
  }
}

Result<uint64_t> Context::reserve_group(int members) {
  const uint64_t bytes = group_bytes(static_cast<uint64_t>(members));
  MERON_ASSIGN(const uint64_t offset, transport_->window_allocate(bytes, "the group's control"));
  MERON_TRY(transport_->window().reserve(offset, bytes));
  control_bytes_ += bytes;
  return offset;
}

Context::~Context() {
  if (transport_ && !closed()) transport_->leave();
}

void Context::close() {
  closing_.store(true);
  std::unique_ptr<ProgressThread> progress;
  std::unique_ptr<DeviceWatch> watch;
  {
    const auto guard = lock();
    progress = std::move(progress_);
    watch = std::move(device_watch_);
  }
  progress.reset();
  watch.reset();
  {
    const auto guard = lock();
    if (closed()) return;
    closed_.store(true, std::memory_order_release);
    for (const auto& operation : pending_) {
      operation->finish(Error(MERON_E_CLOSED, "the context was closed",
                              "wait for operations before the context is closed"));
    }
    pending_.clear();
  }
  // Nothing reads or writes the caller's memory from here on.
  if (rank_ && rank_->device) {
    const auto guard = lock();
    end_devices_locked();
  }
  // Wakes threads of this rank that wait, too.
  transport_->leave();
  HandleTable::instance().erase_all(this);
}

Status Context::check_open() const {
  if (!closed()) return Ok{};
  return closed_error();
}

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
// Posting calls: a rank waits where it is a whole ring ahead, and writes its flight record when its
// group breaks.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "call_log/flight_record.h"
#include "engine/context.h"
#include "engine/event_thread.h"
#include "os/file.h"

namespace meron {
namespace {

// Longest sleep of a rank that is a whole ring ahead, before it looks at its peers again.
constexpr int64_t kRoomSleepNs = 5 * kNanosPerMilli;

}  // namespace

// await_room() has been called.
Result<uint64_t> Context::post(Channel& channel, const Call& call) {
  auto posted = channel.post(call);
  if (!posted.ok()) {
    record_failure(posted.error());
    if (!channel.status().ok()) failures_.unseen.saw_broken_group();
  }
  return posted;
}

// Each operation comes here, also one that is no call of the group, as copies to a device are not.
void Context::submit(Held& held, const std::shared_ptr<Operation>& operation) {
  pending_.submit(held, operation);
  if (events_) events_->begun();
}

// Waits until the ring has room. Slow peers may wait for operations of this rank, so it advances
// these meanwhile. Called before a call's checks, because these must still hold at the post.
Status Context::await_room(Held& held, Channel& channel) {
  if (channel.has_room()) return Ok{};
  const Deadline deadline = rank_->deadline();
  while (!channel.has_room()) {
    MERON_TRY(channel.status());
    progress(held);
    if (const Status status = channel.check_stragglers(deadline); !status.ok()) {
      record_failure(status.error());
      failures_.unseen.saw_broken_group();
      return status;
    }
    MERON_TRY(rest(held, std::min(deadline.remaining(), kRoomSleepNs)));
  }
  return Ok{};
}

void Context::record_failure(const Error& error) {
  const bool broken = error.code() <= MERON_E_TIMEOUT && error.code() > MERON_E_FORKED;
  const char* folder = std::getenv("MERON_FLIGHT_RECORD");
  if (!broken || folder == nullptr || failures_.recorded) return;
  failures_.recorded = true;
  const std::string path = fmt::format("{}/meron-flight-rank{}.json", folder, transport_->rank());
  const Status written = write_file(path, flight_record_json(world()));
  if (!written.ok()) {
    // The failure itself is what the caller must hear of; this is only why its record is missing.
    std::fprintf(stderr, "meron: no flight record: %s\n", written.error().info().what.c_str());
  }
}

}  // namespace meron

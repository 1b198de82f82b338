// SPDX-License-Identifier: Apache-2.0
// Opening, posting and closing. Operations are begun in operations.cpp, and waited for in
// waiting.cpp.
#include "engine/context.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "base/hash.h"
#include "engine/handles.h"
#include "os/file.h"
#include "os/process.h"
#include "plan/plan_json.h"
#include "topology/identity.h"
#include "transport/flight_record.h"
#include "transport/join.h"
#include "transport/token.h"

namespace meron {
namespace {

constexpr int64_t kDefaultTimeoutNs = 600 * kNanosPerSecond;
// How long a rank that is a whole ring ahead sleeps, with the lock held, without a look at its
// peers.
constexpr int64_t kRoomSleepNs = 5 * kNanosPerMilli;

Error closed_error() {
  return Error(MERON_E_CLOSED, "the context was closed", "open another one");
}

}  // namespace

Result<std::shared_ptr<Context>> Context::open(OpenOptions options) {
  std::shared_ptr<Context> context(new Context(std::move(options)));
  MERON_TRY(context->start());
  return context;
}

Status Context::start() {
  MERON_ASSIGN(const Identity identity, find_identity(options_.rank, options_.world_size));
  std::string name = options_.transport;
  if (name == "auto") {
    name = options_.custom ? "custom" : identity.world_size == 1 ? "self" : "shm";
  }
  if (options_.custom && name != "custom") {
    return Error(MERON_E_ARGUMENT,
                 fmt::format("a custom transport is given, and transport '{}' asked for", name),
                 "ask for 'custom', or give no meron_transport");
  }

  MeetingOptions meeting;
  meeting.rank = identity.rank;
  meeting.world_size = identity.world_size;
  meeting.window_reserve = options_.arena_reserve;
  meeting.arena.reserve = options_.arena_reserve;
  meeting.arena.limit = options_.host_memory_limit;
  const int64_t timeout = options_.timeout_ns > 0 ? options_.timeout_ns : kDefaultTimeoutNs;
  meeting.deadline = Deadline::after(timeout);
  meeting.should_stop = options_.should_stop;

  const auto joined = [&]() -> Result<Joined> {
    if (name == "self") {
      if (identity.world_size != 1) {
        return Error(
            MERON_E_ARGUMENT,
            fmt::format("transport 'self' is for one rank, the world has {}", identity.world_size),
            "use 'shm' for processes or 'local' for threads");
      }
      return join_self(meeting);
    }
    if (name == "local") {
      return join_local(meeting, options_.job.empty() ? "default" : options_.job);
    }
    if (name == "shm") {
      MERON_ASSIGN(const Token token, find_token(options_.token));
      return join_shm(meeting, options_.job, token);
    }
    if (name == "custom") {
      if (options_.custom) return join_custom(meeting, *options_.custom);
      return Error(MERON_E_ARGUMENT, "transport 'custom' needs a meron_transport",
                   "set meron_context_options::custom");
    }
    return Error(MERON_E_ARGUMENT, fmt::format("there is no transport '{}'", name),
                 "use 'auto', 'self', 'local', 'shm' or 'custom'");
  };
  auto met = joined();
  if (!met.ok()) return std::move(met).error().at(identity.rank);

  transport_ = std::make_unique<Transport>(std::move(*met));
  const int threads =
      options_.threads > 0 ? options_.threads : std::max(1, cpu_count() / identity.local_size);
  rank_ = std::make_unique<Rank>(*transport_, options_.plan, threads, timeout);
  control_bytes_ += header_bytes(static_cast<uint64_t>(identity.world_size));
  MERON_ASSIGN(const uint64_t control, reserve_group(identity.world_size));
  channels_.push_back(std::make_unique<Channel>(
      *transport_, rank_->counters, Members::world(identity.world_size, identity.rank), control));
  // The first call of every world: plans that differ are found before anything depends on them.
  const Call call{CallKind::open, options_.plan.name, 0, hash_text(to_json(options_.plan, -1))};
  auto posted = post(world(), call);
  if (!posted.ok()) {
    transport_->leave();
    return std::move(posted).error();
  }
  return Ok{};
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
  // Wakes threads of this rank that wait, too.
  transport_->leave();
  HandleTable::instance().erase_all(this);
}

Status Context::check_open() const {
  if (!closed()) return Ok{};
  return closed_error();
}

}  // namespace meron

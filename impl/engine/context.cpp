// SPDX-License-Identifier: Apache-2.0
// Posting and closing. Contexts are opened in opening.cpp, groups made in groups.cpp, operations
// begun in operations.cpp, and waited for in waiting.cpp.
#include "engine/context.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "call_log/flight_record.h"
#include "engine/device_watch.h"
#include "engine/handles.h"
#include "engine/progress_thread.h"
#include "engine/save_thread.h"
#include "os/file.h"
#include "os/process.h"
#include "param/device_group.h"

namespace meron {
namespace {

// How long a rank that is a whole ring ahead sleeps without a look at its peers.
constexpr int64_t kRoomSleepNs = 5 * kNanosPerMilli;
// How long a thread that waits for its turn does so without asking should_stop.
constexpr int64_t kTurnSleepNs = 100 * kNanosPerMilli;
// How often should_stop is asked by calls that rest.
constexpr int64_t kRestStopCheckNs = 20 * kNanosPerMilli;
constexpr int64_t kCloseSleepNs = kNanosPerMilli / 5;

Error closed_error() {
  return Error(MERON_E_CLOSED, "the context was closed", "open another one");
}

}  // namespace

// The trainer's functions are called without the lock: builds with checks see to it.
Context::Context(OpenOptions options) : options_(std::move(options)) {
  if (options_.log) {
    options_.log = [log = std::move(options_.log)](LogLevel level, const std::string& text) {
      expect_unheld("a call of the log");
      log(level, text);
    };
  }
  if (options_.should_stop) {
    options_.should_stop = [stop = std::move(options_.should_stop)] {
      expect_unheld("a call of should_stop");
      return stop();
    };
  }
}

Result<std::shared_ptr<Context>> Context::open(OpenOptions options) {
  std::shared_ptr<Context> context(new Context(std::move(options)));
  MERON_TRY(context->start());
  return context;
}

// await_room_locked() has been called.
Result<uint64_t> Context::post(Channel& channel, const Call& call) {
  auto posted = channel.post(call);
  if (!posted.ok()) record_failure_locked(posted.error());
  return posted;
}

// The peers that are behind may be waiting for operations of this rank, so these go on meanwhile.
// Before a call's checks: what they find must still be so when it is posted.
Status Context::await_room_locked(Held& held, Channel& channel) {
  if (channel.has_room()) return Ok{};
  const Deadline deadline = rank_->deadline();
  while (!channel.has_room()) {
    MERON_TRY(channel.status());
    progress_locked(held);
    if (const Status status = channel.check_stragglers(deadline); !status.ok()) {
      record_failure_locked(status.error());
      return status;
    }
    MERON_TRY(rest(held, std::min(deadline.remaining(), kRoomSleepNs)));
  }
  return Ok{};
}

Status Context::rest(Held& /*held*/, int64_t sleep_ns) {
  bool stopped = false;
  {
    const Recess recess;
    if (const int64_t now = now_ns(); options_.should_stop && now >= next_stop_check_.load()) {
      next_stop_check_.store(now + kRestStopCheckNs);
      stopped = options_.should_stop();
    }
    if (!stopped && !closing_.load()) {
      Transport::Sleeper sleeper(*transport_);
      sleeper.sleep(sleep_ns);
    }
    transport_->pump();
  }
  if (closing_.load()) return closed_error();
  if (!stopped) return Ok{};
  return Error(MERON_E_CANCELLED, "should_stop asked the rank to stop waiting for the others",
               "call again when the ranks are to meet");
}

Result<Turn> Context::wait_for_turn() {
  if (gate_.mine()) {
    return Error(MERON_E_STATE,
                 "a function that the engine called while it began something begins another",
                 "let allocator, log and should_stop only look, and begin it after they return");
  }
  while (!gate_.take(kTurnSleepNs)) {
    if (closing_.load()) return closed_error();
    if (options_.should_stop && options_.should_stop()) {
      return Error(MERON_E_CANCELLED, "should_stop asked the wait for another thread's call to end",
                   "call again; nothing was begun");
    }
  }
  Turn turn(gate_);
  if (releases_in_turn_.some()) take_back_in_turn(turn);
  return turn;
}

void Context::take_back_in_turn(const Turn& /*turn*/) {
  auto held = lock();
  release_due_in_turn();
}

// Under the lock, and in the calling thread's turn.
void Context::release_due_in_turn() {
  for (const auto& release : releases_in_turn_.take()) release();
}

void Context::take_back_locked(Held& /*held*/) {
  for (const auto& release : releases_.take()) release();
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
  const auto reserve = [&] {
    const Recess recess;  // the call has the turn
    return transport_->window().reserve(offset, bytes);
  };
  MERON_TRY(reserve());
  control_bytes_ += bytes;
  return offset;
}

Context::~Context() {
  saves_.reset();
  // What was given up since, and memory that is due to go back to the trainer.
  if (rank_) auto held = lock();
  if (transport_ && !closed()) transport_->leave();
}

void Context::close() {
  expect_unheld("closing a context");
  end_saves();
  closing_.store(true);
  std::unique_ptr<SaveThread> saves;
  std::unique_ptr<ProgressThread> progress;
  std::unique_ptr<DeviceWatch> watch;
  {
    auto held = lock();
    progress = std::move(progress_);
    watch = std::move(device_watch_);
    saves = std::move(saves_);
  }
  saves.reset();
  progress.reset();
  watch.reset();
  // What computes reads and writes memory, the caller's too. Its waits have been told to end. (One
  // of the trainer's functions that closes the context does not wait for the call it is part of.)
  const bool within = gate_.mine();
  const auto quiet = [&] { return running_ <= running_here && (within || gate_.take_if_free()); };
  while (true) {
    {
      auto held = lock();
      if (closed()) return;
      if (quiet()) {
        closed_.store(true, std::memory_order_release);
        for (const auto& operation : pending_) {
          operation->finish(Error(MERON_E_CLOSED, "the context was closed",
                                  "wait for operations before the context is closed"));
        }
        if (passes_ == 0) pending_.clear();
        break;
      }
    }
    Transport::Sleeper sleeper(*transport_);
    sleeper.sleep(kCloseSleepNs);
  }
  if (!within) gate_.give_back();
  // Nothing reads or writes the caller's memory from here on.
  if (rank_ && rank_->device) {
    auto held = lock();
    end_devices_locked(held);
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

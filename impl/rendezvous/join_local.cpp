// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <new>
#include <optional>

#include "rendezvous/join.h"

namespace meron {
namespace {

// The world of one job while its ranks come together.
struct Meeting {
  int world_size = 0;
  int arrived = 0;
  std::shared_ptr<Window> window;
  std::vector<std::shared_ptr<Arena>> arenas;
  std::optional<Error> failure;  // ends the rendezvous for all that have arrived
  std::condition_variable changed;

  // The registry's lock is held. Ranks that arrive later start a new rendezvous.
  Error fail(Error error, std::map<std::string, std::shared_ptr<Meeting>>& meetings,
             const std::string& job) {
    failure = error;
    meetings.erase(job);
    changed.notify_all();
    return error;
  }
};

struct Registry {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<Meeting>> meetings;
};

Registry& registry() {
  static Registry* instance = new Registry;  // never destroyed: threads may outlive statics
  return *instance;
}

Joined make_joined(std::string_view transport, const MeetingOptions& options,
                   const std::shared_ptr<Window>& window,
                   const std::vector<std::shared_ptr<Arena>>& arenas) {
  Joined joined;
  joined.transport = transport;
  joined.rank = options.rank;
  joined.world_size = options.world_size;
  joined.window = window;
  joined.arena = arenas[static_cast<size_t>(options.rank)];
  for (const auto& arena : arenas) {
    joined.peers.push_back({arena->data(), arena, nullptr});
    joined.pids.push_back(process_id());
  }
  return joined;
}

Result<std::shared_ptr<Window>> make_window(const MeetingOptions& options) {
  MERON_ASSIGN(auto window, Window::create(options.window_reserve));
  const uint64_t world = static_cast<uint64_t>(options.world_size);
  MERON_TRY(window->reserve(0, header_bytes(world)));
  auto* header = new (window->writable(0)) WindowHeader;
  header->magic = kWindowMagic;
  header->world_size = static_cast<uint32_t>(options.world_size);
  return window;
}

}  // namespace

Result<Joined> join_self(const MeetingOptions& options) {
  MERON_ASSIGN(auto window, make_window(options));
  MERON_ASSIGN(auto arena, Arena::create(options.arena));
  return make_joined("self", options, window, {arena});
}

Result<Joined> join_local(const MeetingOptions& options, const std::string& job) {
  MERON_ASSIGN(auto arena, Arena::create(options.arena));
  Registry& all = registry();
  std::unique_lock lock(all.mutex);
  std::shared_ptr<Meeting>& entry = all.meetings[job];
  if (!entry) {
    auto window = make_window(options);
    if (!window.ok()) {
      all.meetings.erase(job);
      return std::move(window).error();
    }
    entry = std::make_shared<Meeting>();
    entry->world_size = options.world_size;
    entry->window = *window;
    entry->arenas.resize(static_cast<size_t>(options.world_size));
  }
  const std::shared_ptr<Meeting> meeting = entry;
  if (meeting->world_size != options.world_size) {
    return meeting->fail(
        Error(MERON_E_MISMATCH,
              fmt::format("rank {} says that the world of job '{}' has {} ranks, others say {}",
                          options.rank, job, options.world_size, meeting->world_size),
              "give all ranks the same world size, or another job name")
            .blaming(options.rank),
        all.meetings, job);
  }
  std::shared_ptr<Arena>& place = meeting->arenas[static_cast<size_t>(options.rank)];
  if (place) {
    return Error(MERON_E_DUPLICATE,
                 fmt::format("rank {} of job '{}' has come already", options.rank, job),
                 "give each rank its own number, or another job name");
  }
  place = arena;
  if (++meeting->arrived == meeting->world_size) {
    all.meetings.erase(job);
    meeting->changed.notify_all();
    return make_joined("local", options, meeting->window, meeting->arenas);
  }
  const auto decided = [&] { return meeting->failure || meeting->arrived == meeting->world_size; };
  while (!decided()) {
    const int64_t left = options.deadline.remaining();
    if (left == 0) {
      int missing = 0;
      while (meeting->arenas[static_cast<size_t>(missing)]) ++missing;
      return meeting->fail(
          Error(MERON_E_TIMEOUT,
                fmt::format("{} of {} ranks of job '{}' came in time; rank {} is missing",
                            meeting->arrived, meeting->world_size, job, missing),
                "open every rank's context from a thread of its own, with the same job")
              .blaming(missing),
          all.meetings, job);
    }
    meeting->changed.wait_for(lock, std::chrono::nanoseconds(std::min(left, kMeetingSliceNs)),
                              decided);
    if (decided() || !options.should_stop) continue;
    lock.unlock();
    const bool stop = asked_to_stop(options);
    lock.lock();
    if (!stop || decided()) continue;
    // The others keep waiting, because this rank may open its context again.
    meeting->arenas[static_cast<size_t>(options.rank)] = nullptr;
    if (--meeting->arrived == 0) all.meetings.erase(job);
    return meeting_stopped();
  }
  if (meeting->failure) return *meeting->failure;
  return make_joined("local", options, meeting->window, meeting->arenas);
}

}  // namespace meron

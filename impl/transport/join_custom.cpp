// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <new>

#include "os/process.h"
#include "transport/join.h"

namespace meron {
namespace {

constexpr uint64_t kLeastMessage = 4096;
// How long ranks that were refused, or that give up, may still hear of it.
constexpr int64_t kPatienceNs = 200 * kNanosPerMilli;

Status check(const meron_transport& table) {
  const auto missing = [](const char* name) {
    return Error(MERON_E_ARGUMENT, fmt::format("the custom transport has no function '{}'", name),
                 "fill send, receive, test and cancel of the meron_transport");
  };
  if (table.send == nullptr) return missing("send");
  if (table.receive == nullptr) return missing("receive");
  if (table.test == nullptr) return missing("test");
  if (table.cancel == nullptr) return missing("cancel");
  if (table.max_message != 0 && table.max_message < kLeastMessage) {
    return Error(MERON_E_ARGUMENT,
                 fmt::format("the custom transport's max_message is {}", table.max_message),
                 fmt::format("give at least {}, or 0 for no limit", kLeastMessage));
  }
  return Ok{};
}

Status await_all(Link& link, const MeetingOptions& options) {
  int64_t next_stop_check = now_ns() + kMeetingSliceNs;
  while (true) {
    const bool moved = link.pump();
    MERON_ASSIGN(const bool met, link.met());
    if (met) return Ok{};
    const std::vector<int> missing = link.unmet();
    for (const int rank : missing) {
      if (!link.gone(rank)) continue;
      return Error(MERON_E_PEER_DEAD,
                   fmt::format("rank {} cannot be reached (transport '{}' says {})", rank,
                               link.name(), link.reason(rank)),
                   "see what the transport's functions say, and start all ranks anew")
          .blaming(rank);
    }
    if (options.deadline.passed()) {
      return Error(MERON_E_TIMEOUT,
                   fmt::format("waited in vain for {} of {} ranks; missing: {} {}", missing.size(),
                               options.world_size, missing.size() == 1 ? "rank" : "ranks",
                               fmt::join(missing, ", ")),
                   "start all ranks, or raise timeout_ns")
          .blaming(missing.front());
    }
    if (now_ns() >= next_stop_check) {
      next_stop_check = now_ns() + kMeetingSliceNs;
      if (asked_to_stop(options)) return meeting_stopped();
    }
    if (!moved) link.idle(options.deadline.remaining());
  }
}

}  // namespace

Result<Joined> join_custom(const MeetingOptions& options, const meron_transport& table) {
  MERON_TRY(check(table));
  MERON_ASSIGN(auto window, Window::create(options.window_reserve));
  MERON_TRY(window->reserve(0, header_bytes(static_cast<uint64_t>(options.world_size))));
  auto* header = new (window->writable(0)) WindowHeader;
  header->magic = kWindowMagic;
  header->world_size = static_cast<uint32_t>(options.world_size);

  Joined joined;
  joined.rank = options.rank;
  joined.world_size = options.world_size;
  joined.window = window;
  MERON_ASSIGN(joined.arena, Arena::create(options.arena));
  joined.peers.resize(static_cast<size_t>(options.world_size));
  joined.peers[static_cast<size_t>(options.rank)] = {joined.arena->data(), joined.arena, nullptr};
  joined.pids.resize(static_cast<size_t>(options.world_size));
  joined.pids[static_cast<size_t>(options.rank)] = process_id();
  joined.link = std::make_unique<Link>(table, window, options.rank, options.world_size);
  joined.transport = joined.link->name();
  if (Status met = await_all(*joined.link, options); !met.ok()) {
    joined.link->close(kPatienceNs);
    return std::move(met).error();
  }
  return joined;
}

}  // namespace meron

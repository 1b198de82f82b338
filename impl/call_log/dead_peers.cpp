// SPDX-License-Identifier: Apache-2.0
#include "call_log/dead_peers.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace meron {

Departures::Departures(const Channel& channel) {
  Transport& transport = channel.transport();
  for (int m = 0; m < channel.size(); ++m) {
    const int rank = channel.members().world_rank(m);
    closed_.push_back(transport.left(rank));
    // It may close and end between the two looks.
    dead_.push_back(!closed_.back() && !transport.alive(rank) && !transport.left(rank));
  }
}

int Departures::first_dead() const {
  const auto found = std::find(dead_.begin(), dead_.end(), true);
  return found == dead_.end() ? -1 : static_cast<int>(found - dead_.begin());
}

Error dead_error(const Channel& channel, int member) {
  const int rank = channel.members().world_rank(member);
  return Error(MERON_E_PEER_DEAD,
               fmt::format("{}; it {}", channel.transport().failure_report(rank),
                           channel.last_call_text(member)),
               "see its output; `meron run` tells how it ended. Restart the job")
      .blaming(rank);
}

Error closed_error(const Channel& channel, int member, std::string_view when) {
  const int rank = channel.members().world_rank(member);
  return Error(MERON_E_PEER_CLOSED,
               fmt::format("rank {} closed its context {}; it {}", rank, when,
                           channel.last_call_text(member)),
               "let all ranks make the same calls before they close")
      .blaming(rank);
}

std::optional<Error> find_departure(const Channel& channel, const Departures& gone,
                                    const std::vector<int>& missing,
                                    const std::function<bool()>& certain) {
  if (const int dead = gone.first_dead(); dead >= 0) return dead_error(channel, dead);
  for (const int m : missing) {
    if (!gone.closed(m)) continue;
    if (!channel.is_local(m) && !certain()) break;
    return closed_error(channel, m, "while it was still needed");
  }
  return std::nullopt;
}

std::optional<Error> find_unmade(const Channel& world, const Channel& group, const Channel& axis,
                                 const std::vector<int>& missing) {
  const Status whole = world.status();
  if (whole.ok()) return std::nullopt;
  const ErrorInfo& info = whole.error().info();
  if (info.operation != kMakingAGroup)
    return std::nullopt;  // ranks with the group may still arrive
  for (const int m : missing) {
    const int rank = axis.members().world_rank(m);
    if (rank != info.peer) continue;
    const auto ranks = group.members().ranks();
    const auto place = std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
    if (group.member(static_cast<int>(place)).posted.load(std::memory_order_seq_cst) != 0) continue;
    return Error(info.code,
                 fmt::format("rank {} has made no call in the group, and the world is broken: {}",
                             rank, info.what),
                 info.advice)
        .on(info.subject)
        .blaming(info.peer);
  }
  return std::nullopt;
}

Status Channel::check_alive() {
  const int dead = Departures(*this).first_dead();
  return dead < 0 ? Status(Ok{}) : Status(fail(dead_error(*this, dead)));
}

Status Channel::check_stragglers(Deadline deadline) {
  return check_behind(posted() - kRing + 2, deadline, fmt::format("{} calls behind", kRing),
                      fmt::format("this rank is {} calls ahead of", kRing));
}

Status Channel::check_present(uint64_t sequence, Deadline deadline) {
  return check_behind(sequence, deadline, "before it was needed", "this rank waits for");
}

Status Channel::check_behind(uint64_t sequence, Deadline deadline, std::string_view closed_when,
                             std::string_view late_how) {
  const Departures gone(*this);
  const bool late = deadline.passed();
  const std::vector<int> behind = below(sequence, [this](int m) {
    return m == index() ? posted() + 1 : member(m).posted.load(std::memory_order_seq_cst);
  });
  for (const int m : behind) {
    if (gone.closed(m)) return fail(closed_error(*this, m, closed_when));
    if (gone.dead(m)) return fail(dead_error(*this, m));
  }
  if (!late || behind.empty()) return Ok{};
  const int rank = members().world_rank(behind.front());
  return fail(Error(MERON_E_TIMEOUT,
                    fmt::format("{} {}, which did not follow in time; rank {} {}", late_how,
                                ranks_text(behind), rank, last_call_text(behind.front())),
                    "look what the ranks behind do, or raise the timeout")
                  .blaming(rank));
}

}  // namespace meron

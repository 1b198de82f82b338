// SPDX-License-Identifier: Apache-2.0
// Decides which peers are dead. All code that looks for peers that will never arrive does so here:
// a rank that waits (engine/checking_peers.cpp), is far ahead, or requests the group's status. A
// member is dead if its process has ended, or it cannot be reached, and it did not close its
// context before. Transport::alive reports the state of the process or the link.
#pragma once

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "call_log/channel.h"

namespace meron {

// The members that have closed their context or died. Taken before their progress is read, so that
// their last actions count. Under the context's lock.
class Departures {
 public:
  explicit Departures(const Channel& channel);

  bool closed(int member) const { return closed_[static_cast<size_t>(member)]; }
  bool dead(int member) const { return dead_[static_cast<size_t>(member)]; }
  int first_dead() const;  // -1: none

 private:
  std::vector<bool> closed_, dead_;  // by member
};

// MERON_E_PEER_DEAD, MERON_E_PEER_CLOSED. `when`: "before it was needed".
Error dead_error(const Channel& channel, int member);
Error closed_error(const Channel& channel, int member, std::string_view when);

// Why an operation that waits for `missing` never ends: a member has died, or one of the missing
// has closed its context. `certain`: whether nothing of a remote member that closed is still on its
// way.
std::optional<Error> find_departure(const Channel& channel, const Departures& gone,
                                    const std::vector<int>& missing,
                                    const std::function<bool()>& certain);

// The operation of a rank's error that it could not make a group.
inline constexpr std::string_view kMakingAGroup = "group_create";

// The same in a group, or on an axis of it, where one of the missing has broken the world as it
// made a group, and has made no call in this one so far: it may be that it does not have it.
std::optional<Error> find_unmade(const Channel& world, const Channel& group, const Channel& axis,
                                 const std::vector<int>& missing);

}  // namespace meron

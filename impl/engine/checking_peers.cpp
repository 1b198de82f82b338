// SPDX-License-Identifier: Apache-2.0
// Finds out that a peer will never arrive: it has died, closed its context, or missed the deadline.
// call_log/dead_peers.h decides which ranks are dead.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "call_log/dead_peers.h"
#include "engine/context.h"
#include "engine/save_thread.h"

namespace meron {

void Context::check_peers(Held& held, Operation& target) {
  // Checks the operation that the target waits for. A staged one waits for the earlier ones of its
  // channel.
  Operation* head = &target;
  const std::shared_ptr<Operation> behind = target.behind();
  if (behind && !behind->ended()) {
    head = behind.get();
  } else if (target.staged()) {
    if (Operation* const first = pending_.first_staged(held, target.channel())) head = first;
  }
  Operation& operation = *head;
  if (operation.running()) return;
  Channel& channel = operation.missing_in();
  const Departures gone(channel);
  pending_.advance(held, operation);
  if (operation.ended() || operation.running()) return;

  const std::vector<int> missing = missing_of(held, operation);
  std::optional<Error> error = find_departure(
      channel, gone, missing, [&] { return operation.suspected_for_long(now_ns()); });
  const auto made = std::find_if(groups_.begin() + 1, groups_.end(), [&](const Group& group) {
    return &channel == group.channel.get() || &channel == group.shard.get() ||
           &channel == group.replica.get();
  });
  if (!error && made != groups_.end()) {
    error = find_unmade(world(), *made->channel, channel, missing);
  }
  if (!error && (operation.deadline().passed() || target.deadline().passed())) {
    // The peer may be late because a save still copies its states.
    if (threads_.saves && threads_.saves->some_rank_copies(now_ns())) return;
    const bool known = !missing.empty();
    error = Error(MERON_E_TIMEOUT,
                  fmt::format("the deadline of {} s passed: {}",
                              static_cast<double>(rank_->timeout_ns) / kNanosPerSecond,
                              waiting_text(held, operation)),
                  "look what the missing ranks do, or raise the timeout")
                .blaming(known ? channel.members().world_rank(missing.front()) : MERON_RANK_NONE);
  }
  if (!error) return;
  operation.finish(channel.fail(std::move(*error).during(operation.describe())));
}

Status Context::group_status(Channel& channel) {
  auto held = lock();
  MERON_TRY(check_open());
  MERON_TRY(channel.status());
  return channel.check_alive();
}

}  // namespace meron

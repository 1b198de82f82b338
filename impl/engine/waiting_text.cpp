// SPDX-License-Identifier: Apache-2.0
// What a rank says of a wait: in what, for how long, who has arrived, who is missing and what these
// did last.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/rank_text.h"
#include "engine/context.h"

namespace meron {
namespace {

// "; ranks 3-511 have made no call yet; rank 600 made call 5, barrier, last": those that did the
// same together, in the order of their first ranks.
std::string last_calls_text(const Channel& channel, const std::vector<int>& members) {
  std::vector<std::pair<std::string, std::vector<int>>> calls;
  for (const int m : members) {
    std::string call = channel.last_call_text(m);
    auto same = std::find_if(calls.rbegin(), calls.rend(),
                             [&](const auto& other) { return other.first == call; });
    if (same == calls.rend()) {
      calls.emplace_back(std::move(call), std::vector<int>{});
      same = calls.rbegin();
    }
    same->second.push_back(channel.members().world_rank(m));
  }
  std::string text;
  for (auto& [call, ranks] : calls) {
    std::sort(ranks.begin(), ranks.end());
    if (ranks.size() > 1 && call.starts_with("has ")) call.replace(0, 3, "have");
    text += fmt::format("; {} {}", ranks_text(ranks), call);
  }
  return text;
}

}  // namespace

// Members that have not arrived: in the call at all, or in what the operation waits for.
std::vector<int> Context::missing_of(const Held& /*held*/, const Operation& operation) const {
  if (operation.channel().link() != nullptr && operation.sequence() != 0) {
    auto late = operation.channel().not_begun(operation.sequence());
    if (!late.empty()) return late;
  }
  return operation.missing();
}

std::string Context::waiting_text(const Held& held, const Operation& operation) const {
  std::string text =
      fmt::format("rank {} waits in the {}", transport_->rank(), operation.describe());
  const Operation* head = &operation;
  const auto behind = operation.behind();
  if (behind && !behind->ended()) {
    head = behind.get();
    text += fmt::format(", behind the {}", head->describe());
  }
  if (const int64_t waited = operation.waited_ns(now_ns()); waited > 0) {
    text += fmt::format(", for {:.1f} s so far", static_cast<double>(waited) / kNanosPerSecond);
  }
  const Channel& channel = head->missing_in();
  const std::vector<int> missing = missing_of(held, *head);
  if (missing.empty()) {
    if (const std::string drive = head->waits_for_drive(); !drive.empty()) {
      return fmt::format("{} for this rank's drive: {}", text, drive);
    }
    return text + (head->staged() ? " behind operations that were begun before"
                                  : "; all ranks have arrived");
  }
  std::vector<int> arrived;
  for (int m = 0; m < channel.size(); ++m) {
    if (std::find(missing.begin(), missing.end(), m) == missing.end()) arrived.push_back(m);
  }
  if (!arrived.empty()) text += fmt::format("; {} arrived", channel.ranks_text(arrived));
  text += fmt::format("; missing: {}", channel.ranks_text(missing));
  return text + last_calls_text(channel, missing);
}

std::string Context::waited_for(const Held& held, const Operation& operation) const {
  const auto behind = operation.behind();
  const Operation& head = behind && !behind->ended() ? *behind : operation;
  const std::vector<int> missing = missing_of(held, head);
  if (!missing.empty()) return head.missing_in().ranks_text(missing);
  return head.waits_for_drive().empty() ? std::string() : "this rank's drive";
}

std::string Context::report_wait(const Held& held, Operation& operation, int64_t now) {
  if (operation.reported() || operation.waited_ns(now) < WaitReports::kSlowNs) return {};
  if (!waiters_.reports) waiters_.reports.emplace(transport_->rank());
  if (!waiters_.reports->due(now)) return {};
  operation.set_reported(waited_for(held, operation));
  return waiters_.reports->waits(now, waiting_text(held, operation));
}

std::string Context::report_end(const Held& /*held*/, Operation& operation) {
  const int64_t waited = operation.take_slow_wait(WaitReports::kSlowNs);
  if (waited == 0) return {};
  if (!waiters_.reports) waiters_.reports.emplace(transport_->rank());
  return waiters_.reports->ended(now_ns(), operation.reported(), waited, operation.describe(),
                                 operation.reported_for());
}

}  // namespace meron

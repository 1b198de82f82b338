// SPDX-License-Identifier: Apache-2.0
#include "engine/device_verdict.h"

#include <fmt/format.h>

#include <utility>

namespace meron {
namespace {

DeviceVerdict without(std::string reason) {
  DeviceVerdict verdict;
  verdict.reason = std::move(reason);
  return verdict;
}

// A library may take registered memory on one rank for registered memory on all.
void judge_registration(std::span<const DeviceCard> cards, std::span<const DevicePlace> places,
                        DeviceVerdict* verdict) {
  for (size_t m = 0; m < cards.size(); ++m) {
    if (text_of(cards[m].unregistered).empty()) continue;
    verdict->notice += fmt::format("; no values are registered: rank {}: {}", places[m].rank,
                                   text_of(cards[m].unregistered));
    return;
  }
  verdict->registers = true;
}

// The window, which all ranks have or none.
void judge_windows(std::span<const DeviceCard> cards, std::span<const DevicePlace> places,
                   uint64_t wanted, DeviceVerdict* verdict) {
  for (size_t m = 0; m < cards.size(); ++m) {
    if (text_of(cards[m].reason).empty()) continue;
    verdict->notice += fmt::format("; values are gathered within no window: rank {}: {}",
                                   places[m].rank, text_of(cards[m].reason));
    return;
  }
  for (size_t m = 0; m < cards.size(); ++m) {
    if (cards[m].free_bytes >= wanted) continue;
    verdict->error =
        Error(MERON_E_NO_MEMORY,
              fmt::format("rank {} has {} bytes of its device free, of {} that the plan's "
                          "gather_window asks for",
                          places[m].rank, cards[m].free_bytes, wanted),
              "ask for less, or leave it out: values are then gathered elsewhere")
            .blaming(places[m].rank);
    return;
  }
  verdict->window = wanted;
}

}  // namespace

DeviceVerdict judge_devices(std::span<const DeviceCard> cards, std::span<const DevicePlace> places,
                            const Plan& plan) {
  const DeviceCard& first = cards.front();
  for (size_t m = 0; m < cards.size(); ++m) {
    if (text_of(cards[m].kind) == text_of(first.kind)) continue;
    return without(fmt::format("rank {} computes on {}, rank {} on {}", places[0].rank,
                               text_of(first.kind), places[m].rank, text_of(cards[m].kind)));
  }
  // One that stopped for another's sake gives no reason.
  const DeviceCard* refused = nullptr;
  for (const DeviceCard& card : cards) {
    if (card.state == DeviceCard::usable) continue;
    if (refused == nullptr || text_of(refused->reason).empty()) refused = &card;
  }
  if (refused != nullptr) {
    return without(fmt::format("rank {}: {}",
                               places[static_cast<size_t>(refused - cards.data())].rank,
                               text_of(refused->reason)));
  }
  DeviceVerdict verdict;
  for (size_t m = 1; m < cards.size(); ++m) {
    if (cards[m].version != first.version || text_of(cards[m].library) != text_of(first.library)) {
      verdict.error =
          Error(MERON_E_VERSION,
                fmt::format("rank {} has collectives of version {}, rank {} of version {}",
                            places[0].rank, text_of(first.library), places[m].rank,
                            text_of(cards[m].library)),
                "let all ranks load the same library; `meron info` says which one a rank loads")
              .blaming(places[m].rank);
      return verdict;
    }
    for (size_t other = 0; other < m; ++other) {
      if (places[other].node != places[m].node) continue;
      if (text_of(cards[other].bus) != text_of(cards[m].bus)) continue;
      return without(fmt::format("ranks {} and {} share device {} ({})", places[other].rank,
                                 places[m].rank, text_of(cards[m].bus), text_of(cards[m].name)));
    }
    if (verdict.notice.empty() && text_of(cards[m].name) != text_of(first.name)) {
      verdict.notice =
          fmt::format("; rank {} has {}, rank {} {}: the slower sets the pace", places[0].rank,
                      text_of(first.name), places[m].rank, text_of(cards[m].name));
    }
  }
  if (plan.param.register_values) judge_registration(cards, places, &verdict);
  if (plan.param.gather_window > 0)
    judge_windows(cards, places, plan.param.gather_window, &verdict);
  verdict.joins = !verdict.error;
  return verdict;
}

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
#include "transport/transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

#include "base/held.h"
#include "base/layout.h"
#include "os/futex.h"
#include "os/host.h"

namespace meron {
namespace {

// Longest time for which a leaving rank tries to notify the others.
constexpr int64_t kFarewellNs = kNanosPerSecond;
// Longest sleep of a rank before it looks again for messages of other nodes.
constexpr int64_t kBetweenPumpsNs = 50'000;

}  // namespace

Transport::Transport(Joined joined)
    : joined_(std::move(joined)),
      header_(reinterpret_cast<WindowHeader*>(joined_.window->writable(0))),
      ranks_(reinterpret_cast<RankBlock*>(joined_.window->writable(sizeof(WindowHeader)))),
      regions_(round_up(header_bytes(static_cast<uint64_t>(joined_.world_size)), kPage),
               joined_.window->size()),
      may_spin_(ranks_here() <= cpu_count()) {}

int Transport::ranks_here() const {
  int here = 0;
  for (int rank = 0; rank < joined_.world_size; ++rank) here += is_local(rank) ? 1 : 0;
  return here;
}

bool Transport::alive(int rank) {
  if (rank == joined_.rank) return true;
  if (!is_local(rank)) return !joined_.link->gone(rank);
  const auto watch = joined_.watches.find(rank);
  return watch == joined_.watches.end() || watch->second.alive();
}

std::string Transport::failure_report(int rank) const {
  const std::string host =
      joined_.hosts.empty() ? ""
                            : fmt::format(" on host {}", joined_.hosts[static_cast<size_t>(rank)]);
  if (!is_local(rank)) {
    return fmt::format("rank {}{} cannot be reached any more (transport '{}' says {})", rank, host,
                       joined_.link->name(), joined_.link->reason(rank));
  }
  return fmt::format("rank {} (pid {}){} has died", rank, joined_.pids[static_cast<size_t>(rank)],
                     host);
}

void Transport::pump() {
  expect_unheld("moving what goes between nodes");
  if (!joined_.link || !joined_.link->pump()) return;
  // Received messages may be for other ranks of this node.
  ring();
}

void Transport::ring() {
  if (header_->sleepers.load(std::memory_order_seq_cst) == 0) return;
  for (int rank = 0; rank < joined_.world_size; ++rank) {
    RankBlock& block = ranks_[rank];
    if (block.sleeping.load(std::memory_order_seq_cst) == 0) continue;
    block.bell.fetch_add(1, std::memory_order_seq_cst);
    futex_wake(&block.bell, kWakeAll);
  }
}

Transport::Sleeper::Sleeper(Transport& transport) : transport_(transport) {
  RankBlock& own = transport_.ranks_[transport_.joined_.rank];
  ticket_ = own.bell.load(std::memory_order_seq_cst);
  own.sleeping.fetch_add(1, std::memory_order_seq_cst);
  transport_.header_->sleepers.fetch_add(1, std::memory_order_seq_cst);
}

Transport::Sleeper::~Sleeper() {
  transport_.header_->sleepers.fetch_sub(1, std::memory_order_seq_cst);
  transport_.ranks_[transport_.joined_.rank].sleeping.fetch_sub(1, std::memory_order_seq_cst);
}

void Transport::Sleeper::sleep(int64_t timeout_ns) {
  expect_unheld("a sleep");
  if (transport_.before_sleep_) transport_.before_sleep_();
  // Ranks of other nodes cannot ring; those of this one can, where it has others.
  Link* const link = transport_.link();
  if (link != nullptr && transport_.ranks_here() == 1) return link->idle(timeout_ns);
  if (link != nullptr) timeout_ns = std::min(timeout_ns, kBetweenPumpsNs);
  futex_wait(&transport_.ranks_[transport_.joined_.rank].bell, ticket_, timeout_ns);
}

bool Transport::sleeps() const {
  return ranks_[joined_.rank].sleeping.load(std::memory_order_seq_cst) > 0;
}

void Transport::leave() {
  if (ranks_[joined_.rank].left.exchange(1, std::memory_order_seq_cst) != 0) return;
  ring();
  if (!joined_.link) return;
  try {
    std::vector<int> others;
    for (int rank = 0; rank < joined_.world_size; ++rank) {
      if (rank != joined_.rank) others.push_back(rank);
    }
    joined_.link->claim_word(others, offset_of(&ranks_[joined_.rank].left), 1);
  } catch (const std::bad_alloc&) {
    // The link ends all the same, and so peers on other nodes find that this rank has left.
  }
  joined_.link->close(kFarewellNs);
}

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
#include "transport/transport.h"

#include <fmt/format.h>

#include "base/layout.h"
#include "os/futex.h"
#include "os/host.h"

namespace meron {
namespace {

// How long a rank that leaves tries to tell the others so.
constexpr int64_t kFarewellNs = kNanosPerSecond;

}  // namespace

Transport::Transport(Joined joined)
    : joined_(std::move(joined)),
      header_(reinterpret_cast<WindowHeader*>(joined_.window->writable(0))),
      ranks_(reinterpret_cast<RankBlock*>(joined_.window->writable(sizeof(WindowHeader)))),
      window_end_(round_up(header_bytes(static_cast<uint64_t>(joined_.world_size)), kPage)),
      may_spin_(joined_.world_size <= cpu_count()) {}

void Transport::prefault_peer(int rank, uint64_t offset, uint64_t bytes) const {
  const auto& arena = joined_.peers[static_cast<size_t>(rank)].arena;
  if (arena) arena->prefault(offset, bytes);
}

bool Transport::alive(int rank) {
  if (joined_.link) return !joined_.link->gone(rank);
  if (rank == joined_.rank || joined_.watches.empty()) return true;
  return joined_.watches[static_cast<size_t>(rank)].alive();
}

std::string Transport::obituary(int rank) const {
  if (joined_.link) {
    return fmt::format("rank {} cannot be reached any more (transport '{}' says {})", rank,
                       joined_.link->name(), joined_.link->reason(rank));
  }
  return fmt::format("rank {} (pid {}) has died", rank, joined_.pids[static_cast<size_t>(rank)]);
}

Result<uint64_t> Transport::window_allocate(uint64_t bytes, std::string_view what) {
  const uint64_t begin = window_end_;
  const uint64_t room = joined_.window->size() - begin;
  if (bytes > room) {
    return Error(MERON_E_NO_MEMORY,
                 fmt::format("{} needs {} of the host's shared window, which has {} left of {}",
                             what, readable_bytes(bytes), readable_bytes(room),
                             readable_bytes(joined_.window->size())),
                 "use more ranks or hosts, a smaller model, or raise arena_reserve where the "
                 "host's memory allows it");
  }
  window_end_ += round_up(bytes, kPage);
  return begin;
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
  // No peer can ring here.
  if (Link* const link = transport_.link()) return link->idle(timeout_ns);
  futex_wait(&transport_.ranks_[transport_.joined_.rank].bell, ticket_, timeout_ns);
}

void Transport::leave() {
  if (ranks_[joined_.rank].left.exchange(1, std::memory_order_seq_cst) != 0) return;
  ring();
  if (!joined_.link) return;
  std::vector<int> others;
  for (int rank = 0; rank < joined_.world_size; ++rank) {
    if (rank != joined_.rank) others.push_back(rank);
  }
  const auto* word = reinterpret_cast<const std::byte*>(&ranks_[joined_.rank].left);
  joined_.link->claim_word(others, static_cast<uint64_t>(word - joined_.window->writable(0)), 1);
  joined_.link->close(kFarewellNs);
}

}  // namespace meron

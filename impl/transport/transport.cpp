// SPDX-License-Identifier: Apache-2.0
#include "transport/transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/held.h"
#include "base/layout.h"
#include "os/futex.h"
#include "os/host.h"

namespace meron {
namespace {

// How long a rank that leaves tries to tell the others so.
constexpr int64_t kFarewellNs = kNanosPerSecond;
// How long a rank sleeps before it looks again whether another node has sent something.
constexpr int64_t kBetweenPumpsNs = 50'000;

}  // namespace

Transport::Transport(Joined joined)
    : joined_(std::move(joined)),
      header_(reinterpret_cast<WindowHeader*>(joined_.window->writable(0))),
      ranks_(reinterpret_cast<RankBlock*>(joined_.window->writable(sizeof(WindowHeader)))),
      may_spin_(ranks_here() <= cpu_count()) {
  regions_[0] = {round_up(header_bytes(static_cast<uint64_t>(joined_.world_size)), kPage),
                 joined_.window->size()};
}

int Transport::ranks_here() const {
  int here = 0;
  for (int rank = 0; rank < joined_.world_size; ++rank) here += is_local(rank) ? 1 : 0;
  return here;
}

void Transport::prefault_peer(int rank, uint64_t offset, uint64_t bytes) const {
  const auto& arena = joined_.peers[static_cast<size_t>(rank)].arena;
  if (arena) arena->prefault(offset, bytes);
}

bool Transport::alive(int rank) {
  if (rank == joined_.rank) return true;
  if (!is_local(rank)) return !joined_.link->gone(rank);
  const auto watch = joined_.watches.find(rank);
  return watch == joined_.watches.end() || watch->second.alive();
}

std::string Transport::obituary(int rank) const {
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
  // What has come may be for others of this node.
  ring();
}

namespace {

Error no_room(std::string_view what, uint64_t bytes, uint64_t left, uint64_t window) {
  return Error(MERON_E_NO_MEMORY,
               fmt::format("{} needs {} of the host's shared window, which has {} left of {}", what,
                           readable_bytes(bytes), readable_bytes(left), readable_bytes(window)),
               "use more ranks or hosts, a smaller model, or raise arena_reserve where the host's "
               "memory allows it");
}

}  // namespace

void Transport::open_region(uint32_t group) {
  if (group == 0) return;
  // A share of what is left, so that no number of groups uses up the window.
  Region& world = regions_[0];
  const uint64_t bytes = (world.end - world.next) / kShareOfGroup / kPage * kPage;
  world.end -= bytes;
  regions_[group] = {world.end, world.end + bytes};
}

Result<uint64_t> Transport::window_allocate(uint64_t bytes, std::string_view what, uint32_t group) {
  Region& region = regions_[group];
  // The first range that fits, whatever order ranges were given back in.
  for (auto it = region.free.begin(); it != region.free.end(); ++it) {
    const auto [begin, end] = *it;
    if (end - begin < bytes || bytes == 0) continue;
    const uint64_t taken = std::min(end, begin + round_up(bytes, kPage));
    region.free.erase(it);
    if (taken < end) region.free.emplace(taken, end);
    return begin;
  }
  const uint64_t left = region.end - region.next;
  if (bytes > left) return no_room(what, bytes, left, joined_.window->size());
  const uint64_t begin = region.next;
  // Rounding up may pass the region's end, which is then full.
  region.next = std::min(region.end, begin + round_up(bytes, kPage));
  return begin;
}

void Transport::window_free(uint64_t offset, uint64_t bytes, uint32_t group) {
  Region& region = regions_[group];
  if (bytes == 0) return;
  region.given_back.emplace_back(offset, std::min(region.end, offset + round_up(bytes, kPage)));
}

void Transport::window_recycle(uint32_t group) {
  Region& region = regions_[group];
  for (auto [begin, end] : std::exchange(region.given_back, {})) {
    auto next = region.free.lower_bound(begin);
    if (next != region.free.end() && next->first == end) {
      end = next->second;
      next = region.free.erase(next);
    }
    if (next != region.free.begin()) {
      const auto before = std::prev(next);
      if (before->second == begin) {
        begin = before->first;
        region.free.erase(before);
      }
    }
    region.free.emplace(begin, end);
  }
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
  // Ranks of other nodes cannot ring; those of this one can, where it has others.
  Link* const link = transport_.link();
  if (link != nullptr && transport_.ranks_here() == 1) return link->idle(timeout_ns);
  if (link != nullptr) timeout_ns = std::min(timeout_ns, kBetweenPumpsNs);
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

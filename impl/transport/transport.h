// SPDX-License-Identifier: Apache-2.0
// The joined world: the window, the bells, and who is still there. The transports self, local
// (threads) and shm (processes) differ in how the ranks meet (join.h), not in how they work
// afterwards: they share the window, and see every rank's arena in place. Ranks of a cluster do so
// within a node, and a Link keeps the nodes' windows alike; over a custom transport each rank is a
// node.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "memory/arena.h"
#include "memory/window.h"
#include "os/process.h"
#include "transport/control.h"
#include "transport/link.h"

namespace meron {

// Groups, the world among them; each of the others gets this part of what the world has left of the
// window, so that the last of them still has an eighth of what the first has.
inline constexpr uint32_t kMaxGroups = 64;
inline constexpr uint64_t kShareOfGroup = 32;

// A rank's arena as this rank sees it.
struct PeerMemory {
  const std::byte* base = nullptr;
  std::shared_ptr<const void> keep;  // the mapping
  std::shared_ptr<PeerArena> arena;  // null where the peer's mapping itself is shared (threads)
};

// What a meeting ends with.
struct Joined {
  std::string_view transport;
  int rank = 0;
  int world_size = 1;
  std::shared_ptr<Window> window;
  std::shared_ptr<Arena> arena;
  std::vector<PeerMemory> peers;        // by rank, this one included; empty for other nodes'
  std::map<int, ProcessWatch> watches;  // by rank; of this node, where ranks are processes
  std::vector<int32_t> pids;            // by rank; 0 where it is not known
  std::vector<int> nodes;               // by rank: its node, numbered by first rank; empty: one
  std::vector<std::string> hosts;       // by rank: its host's name; empty where there is one node
  std::unique_ptr<Link> link;           // what joins ranks that share no memory
};

class Transport {
 public:
  explicit Transport(Joined joined);

  std::string_view name() const { return joined_.transport; }
  int rank() const { return joined_.rank; }
  int world_size() const { return joined_.world_size; }
  Arena& arena() { return *joined_.arena; }
  const Arena& arena() const { return *joined_.arena; }
  const std::shared_ptr<Arena>& shared_arena() const { return joined_.arena; }
  Window& window() { return *joined_.window; }
  // Null where all ranks share the window.
  Link* link() const { return joined_.link.get(); }
  // Whether a rank shares the window with this one, and which ranks share one.
  bool is_local(int rank) const { return node(rank) == node(joined_.rank); }
  int node(int rank) const {
    return joined_.nodes.empty() ? 0 : joined_.nodes[static_cast<size_t>(rank)];
  }
  int ranks_here() const;  // that share the window, this one included
  // Memory of a rank's arena, in place; valid until the transport goes, also after the rank died.
  const std::byte* peer(int rank, uint64_t offset) const {
    return joined_.peers[static_cast<size_t>(rank)].base + offset;
  }
  void prefault_peer(int rank, uint64_t offset, uint64_t bytes) const;
  // 0 where it is not known.
  int32_t pid(int rank) const { return joined_.pids[static_cast<size_t>(rank)]; }
  // "rank 2 (pid 4711) has died", or what the link says of it.
  std::string obituary(int rank) const;

  // Whether the rank's process is still there. Only the owner of the context's lock may ask.
  bool alive(int rank);
  bool left(int rank) const { return ranks_[rank].left.load(std::memory_order_seq_cst) != 0; }

  // Gives a group a region of the window, by its number; 0 is the world, which has what is left.
  // All ranks of the world call it in the same order.
  void open_region(uint32_t group);
  // Reserves `bytes` of a group's region at the same offset on every rank of the group, which call
  // it in the same order with the same sizes. (Groups know nothing of what others allocate.) The
  // pages become real by Window::reserve.
  Result<uint64_t> window_allocate(uint64_t bytes, std::string_view what, uint32_t group = 0);
  // Gives a range back that no rank reads or writes any more. It is handed out again after
  // window_recycle(), which all ranks of the group call at the same place of their calls, and only
  // when all of them have cleared what they had there.
  void window_free(uint64_t offset, uint64_t bytes, uint32_t group);
  void window_recycle(uint32_t group);

  // Wakes the threads of other ranks (and of this one) that sleep. Call after a seq_cst store of
  // what they wait for.
  void ring();
  // Moves what is to be sent and what has come; nothing to do where ranks share memory. Called
  // without the context's lock.
  void pump();

  // Sleeping: take a ticket, look once more whether there is something to do, then sleep. A ring
  // after the ticket was taken ends the sleep.
  class Sleeper {
   public:
    explicit Sleeper(Transport& transport);
    ~Sleeper();
    Sleeper(const Sleeper&) = delete;
    Sleeper& operator=(const Sleeper&) = delete;
    void sleep(int64_t timeout_ns);

   private:
    Transport& transport_;
    uint32_t ticket_;
  };

  // Whether spinning is sensible: no more ranks than cores.
  bool may_spin() const { return may_spin_; }

  // Tells peers that this rank is gone for good. Idempotent.
  void leave();

 private:
  Joined joined_;
  WindowHeader* header_;
  RankBlock* ranks_;
  struct Region {
    uint64_t next = 0, end = 0;                                  // what was never handed out of it
    std::map<uint64_t, uint64_t> free = {};                      // begin -> end; never adjacent
    std::vector<std::pair<uint64_t, uint64_t>> given_back = {};  // begin, end; see window_recycle()
  };
  std::array<Region, kMaxGroups> regions_{};
  bool may_spin_ = true;
};

}  // namespace meron

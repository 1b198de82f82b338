// SPDX-License-Identifier: Apache-2.0
// The joined world: the shared segment, the bells, and the ranks that are still alive. The
// transports self, local (threads) and shm (processes) only differ in the rendezvous (join.h).
// Afterwards their ranks share the segment, and see every rank's arena in place. The ranks of a
// cluster do so within a node, and a Link copies changes between the nodes' segments. With a custom
// transport each rank is a node.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "memory/arena.h"
#include "memory/window.h"
#include "os/process.h"
#include "transport/control.h"
#include "transport/link.h"
#include "transport/window_regions.h"

namespace meron {

// A rank's arena as this rank sees it.
struct PeerMemory {
  const std::byte* base = nullptr;
  std::shared_ptr<const void> keep;  // the mapping
  std::shared_ptr<PeerArena> arena;  // null where the peer's mapping itself is shared (threads)
};

// Result of a rendezvous.
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
  // Null if all ranks share the window.
  Link* link() const { return joined_.link.get(); }
  // True if a rank is a local peer: it shares the segment with this one.
  bool is_local(int rank) const { return node(rank) == node(joined_.rank); }
  int node(int rank) const {
    return joined_.nodes.empty() ? 0 : joined_.nodes[static_cast<size_t>(rank)];
  }
  int ranks_here() const;  // ranks that share the segment, this one included
  // Memory of a rank's arena, in place; valid while the transport lives, even after the rank died.
  const std::byte* peer(int rank, uint64_t offset) const {
    return joined_.peers[static_cast<size_t>(rank)].base + offset;
  }
  // 0 if unknown.
  int32_t pid(int rank) const { return joined_.pids[static_cast<size_t>(rank)]; }
  // "rank 2 (pid 4711) has died", or why the link cannot reach it.
  std::string failure_report(int rank) const;

  // True if the rank's process runs, or a remote one can be reached. Under the context's lock.
  // call_log/dead_peers.h decides which ranks are dead.
  bool alive(int rank);
  bool left(int rank) const { return ranks_[rank].left.load(std::memory_order_seq_cst) != 0; }

  // Offset of an address in the shared segment; the same on every rank.
  uint64_t offset_of(const void* place) const {
    return static_cast<uint64_t>(static_cast<const std::byte*>(place) -
                                 joined_.window->writable(0));
  }
  // The window's ranges: see window_regions.h. The pages become real by Window::reserve.
  void open_region(uint32_t group) { regions_.open(group); }
  Result<uint64_t> window_allocate(uint64_t bytes, std::string_view what, uint32_t group = 0) {
    return regions_.allocate(bytes, what, group);
  }
  void window_free(uint64_t offset, uint64_t bytes, uint32_t group) {
    regions_.free(offset, bytes, group);
  }
  void window_recycle(uint32_t group) { regions_.recycle(group); }

  // Wakes the threads of other ranks (and of this one) that sleep. Call after a seq_cst store of
  // what they wait for.
  void ring();
  // Sends and receives what the link has queued; does nothing if all ranks share memory. Called
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

  // Called by each thread of this rank before it sleeps; empty: nothing. Set it while none sleeps.
  void before_sleep(std::function<void()> hook) { before_sleep_ = std::move(hook); }
  // True if a thread of this rank sleeps, or is about to.
  bool sleeps() const;

  // True if spinning is sensible: no more ranks than cores.
  bool may_spin() const { return may_spin_; }

  // Lets peers know that this rank has closed its context. Idempotent.
  void leave();

 private:
  Joined joined_;
  WindowHeader* header_;
  RankBlock* ranks_;
  WindowRegions regions_;
  const bool may_spin_;
  std::function<void()> before_sleep_;
};

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
// Joins ranks that share no memory, over a transport of the caller's (meron/transport.h).
//
// Each node has a shared segment with the same layout; a rank that shares no memory is a node of
// its own. Ranks see each other's progress in words and small records (control.h, UnitSlot). A rank
// writes these into its own segment and sends them to the same offset of the other nodes' segments:
// store(). One rank of each node, the sender's relay there, writes them. A relay that leaves before
// others of its node has a successor. The sender says `bye` to the relay after its last record, and
// uses the successor once the relay has answered, because all is written by then. Values and
// gradients, whose place or time differs by rank, are sent and received in batches: Batch.
//
// A link has two sides. The engine queues stores and transfers under its context's lock, and never
// calls the transport. pump() runs without that lock: it starts queued transfers, tests those under
// way, and writes received records into the segment. One thread pumps at a time; others return at
// once. link.cpp queues, link_control.cpp and link_transfers.cpp send and receive, and
// link_pump.cpp drives them and detects ranks that cannot be reached.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "memory/window.h"
#include "meron/transport.h"

namespace meron {

// Transfers of one operation that end together.
class Batch {
 public:
  explicit Batch(int world_size) : receives_(static_cast<size_t>(world_size)) {}

  // Data that was received, and that peers will receive, may be used and changed.
  bool done() const { return left_.load(std::memory_order_acquire) == 0; }
  // True once everything from a rank has arrived.
  bool arrived(int rank) const {
    return receives_[static_cast<size_t>(rank)].load(std::memory_order_relaxed) == 0;
  }

 private:
  friend class Link;
  std::atomic<int> left_{0};
  std::vector<std::atomic<int>> receives_;  // by world rank
};

class Link {
 public:
  // The first message of every rank. `magic`, `version` and `protocol` have the same offsets in all
  // versions of Meron.
  struct Hello {
    uint64_t magic = 0;
    uint32_t version = 0;   // MERON_VERSION
    uint32_t protocol = 0;  // kProtocol
    uint64_t world_size = 0;
    uint64_t rank = 0;
    uint64_t max_message = 0;
    uint64_t node = 0;  // equal on ranks that can share memory
    int64_t pid = 0;
    std::array<std::byte, 32> nonce{};
    std::array<char, 64> host{};  // NUL-terminated
  };

  // A copy of the table is kept; `table.user` is the caller's. Until attach() it only greets.
  Link(const meron_transport& table, int rank, int world_size, const Hello& own);
  // Ends all of this link's requests to the transport, even if an exception prevented close().
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  const std::string& name() const { return name_; }

  // Call once all have met, with the shared segment and the node of each rank.
  void attach(std::shared_ptr<Window> window, std::vector<int> nodes);
  // The greeting of a rank that was met.
  const Hello& hello(int rank) const { return peers_[static_cast<size_t>(rank)]->hello; }

  // For the engine. Peers see these calls in order.

  // Sends `bytes` of this rank's window, as they are now, to the same place of the ranks'.
  // `offset` and `bytes` are multiples of 8.
  void store(std::span<const int> ranks, uint64_t offset, uint64_t bytes);
  // The same for one word, which is stored there seq_cst after all that was sent before.
  void store_word(std::span<const int> ranks, uint64_t offset, uint64_t value);
  // A 32-bit word that the first of several writers sets for all. Ignored if it is not 0 already.
  void claim_word(std::span<const int> ranks, uint64_t offset, uint32_t value);

  // The memory must stay valid until the batch is done or the link closed; `keep` may own it.
  void send(const std::shared_ptr<Batch>& batch, int rank, uint64_t tag, const std::byte* data,
            uint64_t bytes, std::shared_ptr<const void> keep = nullptr);
  void receive(const std::shared_ptr<Batch>& batch, int rank, uint64_t tag, std::byte* data,
               uint64_t bytes, std::shared_ptr<const void> keep = nullptr);

  // From now on some thread pumps at all times. Messages of a channel to one rank then wait for
  // those of earlier calls, except for as many bytes as keep the link busy. So the data of an early
  // call, which is needed first, arrives first. The same holds for messages from a rank, because a
  // transport with thousands of messages under way spends its time polling them.
  void move_in_turn() { in_turn_.store(true); }

  // True if a rank cannot be reached any more; reason() names the status that reported it.
  bool gone(int rank) const;
  std::string reason(int rank) const;
  // Every rank was heard of, and knows the same world. An error names who does not.
  Result<bool> met() const;
  std::vector<int> unmet() const;

  // For waiting threads, which hold no lock of the engine.

  // True if something was moved.
  bool pump();
  // Sleeps until something may have arrived, at most `timeout_ns`.
  void idle(int64_t timeout_ns);
  // Sends what is queued, for at most `patience_ns`, then drops the rest and releases the
  // transport.
  void close(int64_t patience_ns);

 private:
  enum class Kind : uint32_t { data, word, claim, hello, bye };
  struct Record {
    uint64_t offset;
    uint32_t bytes;
    Kind kind;
  };
  struct Transfer {
    std::shared_ptr<Batch> batch;
    std::shared_ptr<const void> keep;
    const std::byte* from = nullptr;  // sends
    std::byte* to = nullptr;          // receives
    uint64_t bytes = 0;               // of one message; while it waits, all that is left
    uint64_t tag = 0;
    uint64_t request = 0;
    int rank = 0;
  };
  struct UnderWay {
    uint64_t tag;
    uint64_t bytes;
  };
  // The bytes stay where they are until the request has ended.
  struct ControlSend {
    std::vector<std::byte> bytes;
    uint64_t request = 0;
  };
  struct ControlReceive {
    std::vector<std::byte> bytes;
    uint64_t request = 0;
    bool under_way = false;
  };
  struct Controls {
    std::deque<ControlSend> sends;   // under way, in order
    std::vector<std::byte> sending;  // the next, which the transport would not take yet
    ControlReceive receive;
    bool bye_queued = false, bye_received = false;
    int waits_for = -1;  // the relay before this one, whose bye comes first; -1: none
  };
  struct Peer {
    // Of the pumping thread.
    Controls control;
    std::vector<UnderWay> going, coming;  // transfers, by tag
    // A rank from which nothing can be received may still learn why its group breaks.
    bool takes_nothing = false, gives_nothing = false;
    int64_t failed_ns = 0;  // when a function first reported that the rank cannot be reached
    // Shared.
    std::atomic<bool> gone{false};
    std::atomic<bool> met{false};
    std::atomic<meron_status> status{MERON_OK};
    std::vector<std::byte> outbox;  // records, guarded by queue_mutex_
    Hello hello;                    // written before `met` is
  };

  void append(std::span<const int> ranks, Kind kind, uint64_t offset, const void* data,
              uint64_t bytes);
  void queue(Transfer transfer);
  bool pump_control(int rank);
  bool receive_control(int rank);
  bool send_control(int rank);
  void take_from_outbox(Peer& peer);
  bool follows(int rank) const;
  void say_bye(int rank);
  bool is_relay() const;
  bool start_transfers();
  bool start_messages(Transfer& transfer, bool& blocked);
  bool has_turn(const Transfer& transfer) const;
  std::vector<UnderWay>& under_way(const Transfer& transfer) const;
  std::vector<UnderWay>::iterator of_tag(const Transfer& transfer) const;
  bool test_transfers();
  void ask_alive();
  bool apply(int rank, std::span<const std::byte> message);
  void apply_hello(int rank, const Hello& hello);
  void failed(int rank, meron_status status, bool sending);
  // Messages that a transfer that waits will be.
  int messages_of(const Transfer& transfer) const;
  void finish(const Transfer& transfer, int messages = 1);
  void cancel_all();
  bool departed(int rank) const;

  const meron_transport table_;
  const std::string name_;
  std::shared_ptr<Window> window_;    // and nodes_ and position_: set once, by attach()
  std::vector<int> nodes_;            // by rank
  std::vector<int> relays_;           // by node: who writes there what this rank says
  size_t position_ = 0;               // of this rank in its node
  std::vector<bool> via_local_peer_;  // by rank: a local peer receives what it writes
  const int rank_;
  const int world_size_;
  const uint64_t control_bytes_;  // of one control message

  std::atomic<bool> in_turn_{false};

  std::vector<std::unique_ptr<Peer>> peers_;  // by world rank; this rank's is not used
  mutable std::mutex queue_mutex_;            // guards outboxes, relays_, queued_ and stranger_
  std::vector<Transfer> queued_;              // not yet seen by the pump
  std::optional<Error> stranger_;             // what was wrong with a hello

  std::mutex pump_mutex_;         // held while the transport is called; guards what follows
  std::deque<Transfer> waiting_;  // to be started, in order
  std::vector<Transfer> active_;
  int64_t asked_alive_ns_ = 0;
  bool closed_ = false;
};

}  // namespace meron

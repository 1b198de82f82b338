// SPDX-License-Identifier: Apache-2.0
// The side of a link that calls the transport: pump(), which also detects ranks that cannot be
// reached, and close(). link.cpp queues messages.
#include <algorithm>
#include <chrono>
#include <new>
#include <thread>

#include "base/callback.h"
#include "transport/control.h"
#include "transport/link.h"

namespace meron {
namespace {

// A rank that leaves sends word of it before its connection ends: how long that word is waited for
// where another function notices the end first.
constexpr int64_t kGraceNs = 200 * kNanosPerMilli;
// The same where a local peer receives that word, and may not be running. Within the two seconds in
// which a dead rank is named.
constexpr int64_t kLocalPeerGraceNs = 1500 * kNanosPerMilli;
constexpr int64_t kAskAliveNs = 20 * kNanosPerMilli;
constexpr int64_t kIdleNs = kNanosPerMilli;

}  // namespace

bool Link::pump() {
  const std::unique_lock pumping(pump_mutex_, std::try_to_lock);
  if (!pumping || closed_) return false;
  const CallbackScope within(Callback::transport);
  bool moved = false;
  for (bool again = true; again;) {
    again = false;
    for (int rank = 0; rank < world_size_; ++rank) again = pump_control(rank) || again;
    again = start_transfers() || again;
    again = test_transfers() || again;
    moved = moved || again;
  }
  ask_alive();
  return moved;
}

bool Link::pump_control(int rank) {
  if (rank == rank_) return false;
  Peer& peer = *peers_[static_cast<size_t>(rank)];
  bool moved = false;
  if (!peer.gives_nothing) moved = receive_control(rank);
  const bool remote = nodes_[static_cast<size_t>(rank)] != nodes_[static_cast<size_t>(rank_)];
  const bool parting = peer.control.bye_received || departed(rank);
  if (remote && parting && !peer.control.bye_queued) say_bye(rank);
  if (!peer.takes_nothing) moved = send_control(rank) || moved;
  const bool via_local_peer = via_local_peer_[static_cast<size_t>(rank)];
  const int64_t grace = via_local_peer ? kLocalPeerGraceNs : peer.gives_nothing ? 0 : kGraceNs;
  if (peer.failed_ns != 0 && !peer.gone.load() && now_ns() - peer.failed_ns >= grace) {
    peer.gone.store(true, std::memory_order_release);
    moved = true;
  }
  return moved;
}

void Link::failed(int rank, meron_status status, bool sending) {
  Peer& peer = *peers_[static_cast<size_t>(rank)];
  if (sending) peer.takes_nothing = true;
  if (peer.failed_ns != 0) return;
  peer.failed_ns = now_ns();
  peer.status.store(status);
}

void Link::ask_alive() {
  const int64_t now = now_ns();
  if (table_.alive == nullptr || now - asked_alive_ns_ < kAskAliveNs) return;
  asked_alive_ns_ = now;
  for (int rank = 0; rank < world_size_; ++rank) {
    if (rank == rank_ || gone(rank) || table_.alive(table_.user, rank) != 0) continue;
    failed(rank, MERON_E_PEER_DEAD, true);
  }
}

bool Link::departed(int rank) const {
  if (window_ == nullptr) return false;
  const auto* ranks = reinterpret_cast<const RankBlock*>(window_->writable(sizeof(WindowHeader)));
  return ranks[rank].left.load(std::memory_order_seq_cst) != 0;
}

void Link::idle(int64_t timeout_ns) {
  const int64_t most = std::clamp<int64_t>(timeout_ns, 0, kIdleNs);
  if (table_.idle != nullptr) {
    const std::unique_lock pumping(pump_mutex_, std::try_to_lock);
    const CallbackScope within(Callback::transport);
    if (pumping && !closed_) return table_.idle(table_.user, most);
  }
  std::this_thread::sleep_for(std::chrono::nanoseconds(most / 10));
}

Link::~Link() {
  if (!closed_) cancel_all();
}

void Link::close(int64_t patience_ns) {
  const Deadline deadline = Deadline::after(patience_ns);
  const auto unsent = [this] {
    const std::lock_guard queues(queue_mutex_);
    return std::any_of(peers_.begin(), peers_.end(), [](const auto& peer) {
      return !peer->takes_nothing && (!peer->outbox.empty() || !peer->control.sends.empty() ||
                                      !peer->control.sending.empty());
    });
  };
  // Other threads may still be pumping; pump_mutex_ guards everything here.
  while (true) {
    try {
      (void)pump();
    } catch (const std::bad_alloc&) {
      // Tried again until the deadline.
    }
    {
      const std::lock_guard pumping(pump_mutex_);
      if (closed_) return;
      if ((!unsent() && !is_relay()) || deadline.passed()) {
        closed_ = true;
        cancel_all();
        break;
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  if (table_.closed == nullptr) return;
  const CallbackScope within(Callback::transport);
  table_.closed(table_.user);
}

void Link::cancel_all() {
  const CallbackScope within(Callback::transport);
  for (const auto& peer : peers_) {
    for (const ControlSend& send : peer->control.sends) table_.cancel(table_.user, send.request);
    if (peer->control.receive.under_way) table_.cancel(table_.user, peer->control.receive.request);
  }
  for (const Transfer& transfer : active_) table_.cancel(table_.user, transfer.request);
  active_.clear();
  waiting_.clear();
  const std::lock_guard lock(queue_mutex_);
  queued_.clear();
}

}  // namespace meron

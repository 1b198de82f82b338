// SPDX-License-Identifier: Apache-2.0
// Transfers of a link: values and gradients, sent and received in batches, the messages of earlier
// calls first.
#include <algorithm>
#include <iterator>
#include <utility>

#include "transport/control.h"
#include "transport/link.h"
#include "transport/make_room.h"

namespace meron {
namespace {

// Of one channel to one rank, with move_in_turn(): a few round trips of any link's.
constexpr uint64_t kInFlight = 2 << 20;

}  // namespace

std::vector<Link::UnderWay>& Link::under_way(const Transfer& transfer) const {
  Peer& peer = *peers_[static_cast<size_t>(transfer.rank)];
  return transfer.to == nullptr ? peer.going : peer.coming;
}

std::vector<Link::UnderWay>::iterator Link::of_tag(const Transfer& transfer) const {
  auto& all = under_way(transfer);
  const auto same = std::find_if(all.begin(), all.end(),
                                 [&](const auto& other) { return other.tag == transfer.tag; });
  return same != all.end() ? same : all.insert(all.end(), {transfer.tag, 0});
}

// The earliest call waits for its own messages only: all ranks make the calls of a channel in one
// order, so that the earliest ends, and then the next.
bool Link::has_turn(const Transfer& transfer) const {
  // Receives may be further ahead, so that each message finds its receive ready.
  const uint64_t most = transfer.to == nullptr ? kInFlight : 2 * kInFlight;
  uint64_t all = 0, no_later = 0;
  bool first = true;
  for (const UnderWay& other : under_way(transfer)) {
    if (!same_channel(other.tag, transfer.tag)) continue;
    all += other.bytes;
    if (!earlier_call(transfer.tag, other.tag)) no_later += other.bytes;
    first = first && !earlier_call(other.tag, transfer.tag);
  }
  return all < most || (first && no_later < most);
}

bool Link::start_transfers() {
  {
    const std::lock_guard lock(queue_mutex_);
    // All of them, or, if memory runs out, none.
    waiting_.insert(waiting_.end(), std::make_move_iterator(queued_.begin()),
                    std::make_move_iterator(queued_.end()));
    queued_.clear();
  }
  bool moved = false;
  // Transfers of one peer and direction start in order: after one that has to wait, none.
  std::vector<bool> send_blocked(peers_.size()), receive_blocked(peers_.size());
  for (Transfer& transfer : waiting_) {
    if (transfer.bytes == 0) continue;  // of a pass that ran out of memory
    const size_t rank = static_cast<size_t>(transfer.rank);
    const bool sends = transfer.to == nullptr;
    if (sends && (peers_[rank]->takes_nothing || departed(transfer.rank))) {
      finish(transfer, messages_of(transfer));
      transfer.bytes = 0;
      continue;
    }
    // A transfer that will never arrive is never done: its operation ends when the peer is found
    // dead. Messages that a rank sent before it left can still be received, also while word that it
    // left has yet to come.
    if (!sends && gone(transfer.rank) && !departed(transfer.rank)) {
      transfer.bytes = 0;
      continue;
    }
    bool blocked = sends ? send_blocked[rank] : receive_blocked[rank];
    moved = start_messages(transfer, blocked) || moved;
    (sends ? send_blocked : receive_blocked)[rank] = blocked;
  }
  std::erase_if(waiting_, [](const Transfer& transfer) { return transfer.bytes == 0; });
  return moved;
}

// Starts as many of a transfer's messages as allowed now. `bytes` is then the rest; 0 after a
// failure.
bool Link::start_messages(Transfer& transfer, bool& blocked) {
  const bool sends = transfer.to == nullptr;
  const uint64_t most = table_.max_message == 0 ? UINT64_MAX : table_.max_message;
  bool moved = false;
  while (transfer.bytes != 0 && !blocked && (!in_turn_.load() || has_turn(transfer))) {
    // The transport's request must be noted, so no memory is needed after it has begun.
    make_room(active_, 1);
    make_room(under_way(transfer), 1);
    Transfer message = transfer;
    message.bytes = std::min(transfer.bytes, most);
    const meron_status status = sends ? table_.send(table_.user, &message.request, message.rank,
                                                    message.tag, message.from, message.bytes)
                                      : table_.receive(table_.user, &message.request, message.rank,
                                                       message.tag, message.to, message.bytes);
    if (status == MERON_IN_PROGRESS) {
      blocked = true;
      break;
    }
    moved = true;
    if (status < 0) {
      failed(transfer.rank, status, sends);
      if (sends) finish(transfer, messages_of(transfer));
      transfer.bytes = 0;
      break;
    }
    transfer.bytes -= message.bytes;
    if (transfer.bytes != 0) {
      if (sends) {
        transfer.from += message.bytes;
      } else {
        transfer.to += message.bytes;
      }
    }
    of_tag(message)->bytes += message.bytes;
    active_.push_back(std::move(message));
  }
  return moved;
}

int Link::messages_of(const Transfer& transfer) const {
  if (table_.max_message == 0) return 1;
  return static_cast<int>((transfer.bytes + table_.max_message - 1) / table_.max_message);
}

bool Link::test_transfers() {
  bool moved = false;
  size_t kept = 0;
  for (size_t i = 0; i < active_.size(); ++i) {
    Transfer& transfer = active_[i];
    uint64_t bytes = 0;
    meron_status status = table_.test(table_.user, transfer.request, &bytes);
    const bool sends = transfer.to == nullptr;
    if (status == MERON_IN_PROGRESS && sends && departed(transfer.rank)) {
      // It has taken what it needs, and takes no more.
      table_.cancel(table_.user, transfer.request);
      status = MERON_OK;
    }
    if (status == MERON_IN_PROGRESS) {
      if (kept != i) active_[kept] = std::move(transfer);
      ++kept;
      continue;
    }
    moved = true;
    const auto same = of_tag(transfer);
    same->bytes -= transfer.bytes;
    if (same->bytes == 0) under_way(transfer).erase(same);
    if (status == MERON_OK && !sends && bytes != transfer.bytes) status = MERON_E_MISMATCH;
    if (status < 0) {
      failed(transfer.rank, status, sends);
      if (sends) finish(transfer);
      continue;
    }
    finish(transfer);
  }
  active_.resize(kept);
  return moved;
}

void Link::finish(const Transfer& transfer, int messages) {
  Batch& batch = *transfer.batch;
  if (transfer.to != nullptr) {
    batch.receives_[static_cast<size_t>(transfer.rank)].fetch_sub(messages,
                                                                  std::memory_order_relaxed);
  }
  batch.left_.fetch_sub(messages, std::memory_order_release);
}

}  // namespace meron

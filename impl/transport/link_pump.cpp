// SPDX-License-Identifier: Apache-2.0
// The side of a link that calls the transport: pump(), and the end. What the engine says is queued
// in link.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "transport/control.h"
#include "transport/link.h"

namespace meron {
namespace {

constexpr uint64_t kControlTag = 0;
// A rank that leaves says so before its connection ends: how long that word is waited for where
// another function notices the end first.
constexpr int64_t kGraceNs = 200 * kNanosPerMilli;
// The same where a rank of this node is told, and may not have been running: it says at once what
// it finds. Within the two seconds in which a dead rank is named.
constexpr int64_t kMateGraceNs = 1500 * kNanosPerMilli;
constexpr int64_t kAskAliveNs = 20 * kNanosPerMilli;
constexpr int64_t kIdleNs = kNanosPerMilli;
// Of one channel to one rank, with move_in_turn(): a few round trips of any link's.
constexpr uint64_t kInFlight = 2 << 20;

std::atomic<uint64_t>& word_at(std::byte* place) {
  return *reinterpret_cast<std::atomic<uint64_t>*>(place);
}

}  // namespace

bool Link::pump() {
  const std::unique_lock pumping(pump_mutex_, std::try_to_lock);
  if (!pumping || closed_) return false;
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
  if (!peer.takes_nothing) moved = send_control(rank) || moved;
  const bool tells_mate = tells_mate_[static_cast<size_t>(rank)];
  const int64_t grace = tells_mate ? kMateGraceNs : peer.gives_nothing ? 0 : kGraceNs;
  if (peer.failed_ns != 0 && !peer.gone.load() && now_ns() - peer.failed_ns >= grace) {
    peer.gone.store(true, std::memory_order_release);
    moved = true;
  }
  return moved;
}

bool Link::receive_control(int rank) {
  Peer& peer = *peers_[static_cast<size_t>(rank)];
  // What follows the greeting is for the window.
  if (window_ == nullptr && peer.met.load()) return false;
  if (!peer.receive_under_way) {
    peer.receiving.resize(control_bytes_);
    const meron_status status = table_.receive(table_.user, &peer.receive_request, rank,
                                               kControlTag, peer.receiving.data(), control_bytes_);
    if (status == MERON_IN_PROGRESS) return false;
    if (status < 0) {
      peer.gives_nothing = true;
      failed(rank, status, false);
      return true;
    }
    peer.receive_under_way = true;
  }
  uint64_t bytes = 0;
  const meron_status status = table_.test(table_.user, peer.receive_request, &bytes);
  if (status == MERON_IN_PROGRESS) return false;
  peer.receive_under_way = false;
  if (status < 0 || bytes > control_bytes_ ||
      !apply(rank, std::span(peer.receiving).first(static_cast<size_t>(bytes))).ok()) {
    peer.gives_nothing = true;
    failed(rank, status < 0 ? status : MERON_E_PARSE, false);
  }
  return true;
}

// Starts everything that is there: nothing may wait for the end of a message before, because the
// trainer may leave the engine for long, and its peers need what it has said already. (No rank is
// more than kRing operations ahead, which bounds what is under way.)
bool Link::send_control(int rank) {
  Peer& peer = *peers_[static_cast<size_t>(rank)];
  bool moved = false;
  while (!peer.sends.empty()) {
    uint64_t bytes = 0;
    const meron_status status = table_.test(table_.user, peer.sends.front().request, &bytes);
    if (status == MERON_IN_PROGRESS) break;
    peer.sends.pop_front();
    moved = true;
    if (status < 0) {
      failed(rank, status, true);
      return true;
    }
  }
  while (true) {
    if (peer.sending.empty()) take_from_outbox(peer);
    if (peer.sending.empty()) return moved;
    uint64_t request = 0;
    const meron_status status = table_.send(table_.user, &request, rank, kControlTag,
                                            peer.sending.data(), peer.sending.size());
    if (status == MERON_IN_PROGRESS) return moved;
    if (status < 0) {
      failed(rank, status, true);
      return true;
    }
    peer.sends.push_back({std::move(peer.sending), request});
    peer.sending = {};
    moved = true;
  }
}

// Whole records, as many as a message holds.
void Link::take_from_outbox(Peer& peer) {
  const std::lock_guard lock(queue_mutex_);
  uint64_t end = 0;
  while (end < peer.outbox.size()) {
    Record record;
    std::memcpy(&record, peer.outbox.data() + end, sizeof(record));
    const uint64_t next = end + sizeof(record) + record.bytes;
    if (next > control_bytes_) break;
    end = next;
  }
  const auto split = peer.outbox.begin() + static_cast<ptrdiff_t>(end);
  peer.sending.assign(peer.outbox.begin(), split);
  peer.outbox.erase(peer.outbox.begin(), split);
}

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
  // What is to be sent finds its receive ready.
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
    for (Transfer& transfer : queued_) waiting_.push_back(std::move(transfer));
    queued_.clear();
  }
  bool moved = false;
  // Transfers of one peer and direction start in order: after one that has to wait, none.
  std::vector<bool> send_blocked(peers_.size()), receive_blocked(peers_.size());
  std::deque<Transfer> still;
  for (Transfer& transfer : waiting_) {
    const size_t rank = static_cast<size_t>(transfer.rank);
    const bool sends = transfer.to == nullptr;
    if (sends && (peers_[rank]->takes_nothing || departed(transfer.rank))) {
      finish(transfer, messages_of(transfer));
      continue;
    }
    // What will never come is never done: its operation ends by the peer's end. What a rank sent
    // before it left lies in the transport until it is asked for.
    if (!sends && peers_[rank]->gives_nothing && !departed(transfer.rank)) continue;
    bool blocked = sends ? send_blocked[rank] : receive_blocked[rank];
    moved = start_messages(transfer, blocked) || moved;
    (sends ? send_blocked : receive_blocked)[rank] = blocked;
    if (transfer.bytes != 0) still.push_back(std::move(transfer));
  }
  waiting_ = std::move(still);
  return moved;
}

// As many of a transfer's messages as may go now. What is left has `bytes`; after a failure,
// nothing.
bool Link::start_messages(Transfer& transfer, bool& blocked) {
  const bool sends = transfer.to == nullptr;
  const uint64_t most = table_.max_message == 0 ? UINT64_MAX : table_.max_message;
  bool moved = false;
  while (transfer.bytes != 0 && !blocked && (!in_turn_.load() || has_turn(transfer))) {
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

Status Link::apply(int rank, std::span<const std::byte> message) {
  const Error malformed(MERON_E_PARSE, "a control message makes no sense");
  while (!message.empty()) {
    Record record;
    if (message.size() < sizeof(record)) return malformed;
    std::memcpy(&record, message.data(), sizeof(record));
    message = message.subspan(sizeof(record));
    const uint64_t size = window_ == nullptr ? 0 : window_->size();
    if (record.bytes > message.size() || record.bytes % 8 != 0 || record.bytes == 0 ||
        record.offset % 4 != 0 ||
        (record.kind != Kind::hello &&
         (record.offset > size || record.bytes > size - record.offset))) {
      return malformed;
    }
    const std::byte* from = message.data();
    message = message.subspan(record.bytes);
    std::byte* to = record.kind == Kind::hello ? nullptr : window_->writable(record.offset);
    uint64_t value = 0;
    std::memcpy(&value, from, sizeof(value));
    switch (record.kind) {
      case Kind::data:
        if (record.offset % 8 != 0) return malformed;
        // By words: a thread of this rank may look at what it will not use.
        for (uint64_t at = 0; at < record.bytes; at += 8) {
          std::memcpy(&value, from + at, sizeof(value));
          word_at(to + at).store(value, std::memory_order_relaxed);
        }
        break;
      case Kind::word:
        if (record.offset % 8 != 0) return malformed;
        word_at(to).store(value, std::memory_order_seq_cst);
        break;
      case Kind::claim: {
        uint32_t none = 0;
        reinterpret_cast<std::atomic<uint32_t>*>(to)->compare_exchange_strong(
            none, static_cast<uint32_t>(value), std::memory_order_seq_cst);
        break;
      }
      case Kind::hello: {
        Hello hello;
        std::memcpy(&hello, from, std::min<size_t>(record.bytes, sizeof(hello)));
        const bool another = hello.version != MERON_VERSION;  // whose greeting may be longer
        if (!is_magic(hello.magic) || (record.bytes != sizeof(hello) && !another)) {
          return malformed;
        }
        apply_hello(rank, hello);
        break;
      }
      default:
        return malformed;
    }
  }
  return Ok{};
}

void Link::apply_hello(int rank, const Hello& hello) {
  const auto wrong = [&](meron_status code, std::string what, const char* advice) {
    const std::lock_guard lock(queue_mutex_);
    stranger_ = Error(code, std::move(what), advice).blaming(rank);
  };
  const auto differs = [&](std::string what) {
    wrong(MERON_E_MISMATCH, std::move(what),
          "give every rank its own number, the same world size and the same transport");
  };
  if (hello.magic != kWindowMagic || hello.protocol != kProtocol ||
      hello.version != MERON_VERSION) {
    return wrong(MERON_E_VERSION,
                 fmt::format("rank {} runs Meron {}.{}.{}, rank {} runs {}.{}.{}", rank,
                             hello.version >> 16, hello.version >> 8 & 0xff, hello.version & 0xff,
                             rank_, MERON_VERSION_MAJOR, MERON_VERSION_MINOR, MERON_VERSION_PATCH),
                 "let all ranks load the same library");
  }
  if (hello.rank != static_cast<uint64_t>(rank)) {
    return differs(fmt::format("what transport '{}' calls rank {} says that it is rank {}", name_,
                               rank, hello.rank));
  }
  if (hello.world_size != static_cast<uint64_t>(world_size_)) {
    return differs(fmt::format("rank {} opened a world of {} ranks, rank {} one of {}", rank,
                               hello.world_size, rank_, world_size_));
  }
  if (hello.max_message != table_.max_message) {
    return differs(fmt::format("rank {} has max_message {}, rank {} has {}", rank,
                               hello.max_message, rank_, table_.max_message));
  }
  Peer& peer = *peers_[static_cast<size_t>(rank)];
  peer.hello = hello;
  peer.hello.host.back() = '\0';
  peer.met.store(true);
}

void Link::idle(int64_t timeout_ns) {
  const int64_t most = std::clamp<int64_t>(timeout_ns, 0, kIdleNs);
  if (table_.idle != nullptr) {
    const std::unique_lock pumping(pump_mutex_, std::try_to_lock);
    if (pumping && !closed_) return table_.idle(table_.user, most);
  }
  std::this_thread::sleep_for(std::chrono::nanoseconds(most / 10));
}

void Link::close(int64_t patience_ns) {
  const Deadline deadline = Deadline::after(patience_ns);
  const auto unsent = [this] {
    const std::lock_guard queues(queue_mutex_);
    return std::any_of(peers_.begin(), peers_.end(), [](const auto& peer) {
      return !peer->takes_nothing &&
             (!peer->outbox.empty() || !peer->sends.empty() || !peer->sending.empty());
    });
  };
  // Others may still be pumping; all that is asked here is settled under pump_mutex_.
  while (true) {
    (void)pump();
    {
      const std::lock_guard pumping(pump_mutex_);
      if (closed_) return;
      if (!unsent() || deadline.passed()) {
        closed_ = true;
        cancel_all();
        break;
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  if (table_.closed != nullptr) table_.closed(table_.user);
}

void Link::cancel_all() {
  for (const auto& peer : peers_) {
    for (const ControlSend& send : peer->sends) table_.cancel(table_.user, send.request);
    if (peer->receive_under_way) table_.cancel(table_.user, peer->receive_request);
  }
  for (const Transfer& transfer : active_) table_.cancel(table_.user, transfer.request);
  active_.clear();
  waiting_.clear();
  const std::lock_guard lock(queue_mutex_);
  queued_.clear();
}

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
// Control messages of a link: greetings, and the words and records that ranks write into the
// window. Queued by link.cpp, sent and received here, applied to this node's window.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/control.h"
#include "transport/link.h"
#include "transport/make_room.h"

namespace meron {
namespace {

constexpr uint64_t kControlTag = 0;
std::atomic<uint64_t>& word_at(std::byte* place) {
  return *reinterpret_cast<std::atomic<uint64_t>*>(place);
}

}  // namespace

bool Link::receive_control(int rank) {
  Peer& peer = *peers_[static_cast<size_t>(rank)];
  // Messages after the greeting need the shared segment.
  if (window_ == nullptr && peer.met.load()) return false;
  if (!peer.control.receive.under_way) {
    peer.control.receive.bytes.resize(control_bytes_);
    const meron_status status =
        table_.receive(table_.user, &peer.control.receive.request, rank, kControlTag,
                       peer.control.receive.bytes.data(), control_bytes_);
    if (status == MERON_IN_PROGRESS) return false;
    if (status < 0) {
      peer.gives_nothing = true;
      failed(rank, status, false);
      return true;
    }
    peer.control.receive.under_way = true;
  }
  uint64_t bytes = 0;
  const meron_status status = table_.test(table_.user, peer.control.receive.request, &bytes);
  if (status == MERON_IN_PROGRESS) return false;
  peer.control.receive.under_way = false;
  if (status < 0 || bytes > control_bytes_ ||
      !apply(rank, std::span(peer.control.receive.bytes).first(static_cast<size_t>(bytes)))) {
    peer.gives_nothing = true;
    failed(rank, status < 0 ? status : MERON_E_PARSE, false);
  }
  return true;
}

// Starts all queued messages. None may wait for the end of an earlier one, because the trainer may
// leave the engine for long, and its peers need these messages. No rank is more than kRing
// operations ahead, so the number under way is bounded.
bool Link::send_control(int rank) {
  Peer& peer = *peers_[static_cast<size_t>(rank)];
  bool moved = false;
  while (!peer.control.sends.empty()) {
    uint64_t bytes = 0;
    const meron_status status =
        table_.test(table_.user, peer.control.sends.front().request, &bytes);
    if (status == MERON_IN_PROGRESS) break;
    peer.control.sends.pop_front();
    moved = true;
    if (status < 0) {
      failed(rank, status, true);
      return true;
    }
  }
  while (!follows(rank)) {
    if (peer.control.sending.empty()) take_from_outbox(peer);
    if (peer.control.sending.empty()) return moved;
    // Before the transport has the bytes: they must stay until the request has ended.
    ControlSend& next = peer.control.sends.emplace_back();
    const meron_status status =
        table_.send(table_.user, &next.request, rank, kControlTag, peer.control.sending.data(),
                    peer.control.sending.size());
    if (status == MERON_IN_PROGRESS || status < 0) {
      peer.control.sends.pop_back();
      if (status == MERON_IN_PROGRESS) return moved;
      failed(rank, status, true);
      return true;
    }
    next.bytes = std::exchange(peer.control.sending, {});
    moved = true;
  }
  return moved;
}

// True while a relay's predecessor may still have records to write. Later ones have to wait.
bool Link::follows(int rank) const {
  const int before = peers_[static_cast<size_t>(rank)]->control.waits_for;
  if (before < 0) return false;
  const Peer& peer = *peers_[static_cast<size_t>(before)];
  return !peer.control.bye_received && !peer.gives_nothing && !peer.gone.load();
}

// Says bye to a remote rank that leaves, or answers one that has said it. Records that wait to be
// sent to a relay go to its successor.
void Link::say_bye(int rank) {
  Peer& peer = *peers_[static_cast<size_t>(rank)];
  const auto node = static_cast<size_t>(nodes_[static_cast<size_t>(rank)]);
  const Record bye{0, sizeof(uint64_t), Kind::bye};
  const uint64_t nothing = 0;
  const std::lock_guard lock(queue_mutex_);
  std::vector<int> staying;
  for (int r = 0; r < world_size_; ++r) {
    if (nodes_[static_cast<size_t>(r)] == nodes_[static_cast<size_t>(rank)] && !departed(r)) {
      staying.push_back(r);
    }
  }
  make_room(peer.outbox, sizeof(bye) + sizeof(nothing));
  if (relays_[node] == rank && departed(rank) && !staying.empty()) {
    const int next = staying[position_ % staying.size()];
    Peer& successor = *peers_[static_cast<size_t>(next)];
    make_room(successor.outbox, peer.control.sending.size() + peer.outbox.size());
    for (std::vector<std::byte>* const records : {&peer.control.sending, &peer.outbox}) {
      successor.outbox.insert(successor.outbox.end(), records->begin(), records->end());
      records->clear();
    }
    successor.control.waits_for = follows(rank) ? peer.control.waits_for : rank;
    peer.control.waits_for = -1;
    relays_[node] = next;
  }
  const auto* head = reinterpret_cast<const std::byte*>(&bye);
  const auto* word = reinterpret_cast<const std::byte*>(&nothing);
  peer.outbox.insert(peer.outbox.end(), head, head + sizeof(bye));
  peer.outbox.insert(peer.outbox.end(), word, word + sizeof(nothing));
  peer.control.bye_queued = true;
}

// True if a rank of this node stays, and a remote rank may still speak to it by way of this one.
bool Link::is_relay() const {
  if (window_ == nullptr) return false;
  bool locals = false, speakers = false;
  for (int r = 0; r < world_size_; ++r) {
    if (r == rank_ || departed(r)) continue;
    const Peer& peer = *peers_[static_cast<size_t>(r)];
    if (nodes_[static_cast<size_t>(r)] == nodes_[static_cast<size_t>(rank_)]) {
      locals = true;
    } else {
      speakers =
          speakers || (!peer.control.bye_received && !peer.gives_nothing && !peer.gone.load());
    }
  }
  return locals && speakers;
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
  peer.control.sending.assign(peer.outbox.begin(), split);
  peer.outbox.erase(peer.outbox.begin(), split);
}

// False: the message makes no sense. Needs no memory, so that nothing is lost that was received.
// (Refusing a greeting does: the meeting ends by it.)
bool Link::apply(int rank, std::span<const std::byte> message) {
  while (!message.empty()) {
    Record record;
    if (message.size() < sizeof(record)) return false;
    std::memcpy(&record, message.data(), sizeof(record));
    message = message.subspan(sizeof(record));
    const uint64_t size = window_ == nullptr ? 0 : window_->size();
    if (record.bytes > message.size() || record.bytes % 8 != 0 || record.bytes == 0 ||
        record.offset % 4 != 0 ||
        (record.kind != Kind::hello &&
         (record.offset > size || record.bytes > size - record.offset))) {
      return false;
    }
    const std::byte* from = message.data();
    message = message.subspan(record.bytes);
    std::byte* to = record.kind == Kind::hello ? nullptr : window_->writable(record.offset);
    uint64_t value = 0;
    std::memcpy(&value, from, sizeof(value));
    switch (record.kind) {
      case Kind::data:
        if (record.offset % 8 != 0) return false;
        // By words, in order: a thread of this rank may look at what it will not use, or at a
        // record that is being overwritten (CallSlot).
        for (uint64_t at = 0; at < record.bytes; at += 8) {
          std::memcpy(&value, from + at, sizeof(value));
          word_at(to + at).store(value, std::memory_order_release);
        }
        break;
      case Kind::word:
        if (record.offset % 8 != 0) return false;
        word_at(to).store(value, std::memory_order_seq_cst);
        break;
      case Kind::claim: {
        uint32_t none = 0;
        reinterpret_cast<std::atomic<uint32_t>*>(to)->compare_exchange_strong(
            none, static_cast<uint32_t>(value), std::memory_order_seq_cst);
        break;
      }
      case Kind::bye:
        peers_[static_cast<size_t>(rank)]->control.bye_received = true;
        break;
      case Kind::hello: {
        Hello hello;
        std::memcpy(&hello, from, std::min<size_t>(record.bytes, sizeof(hello)));
        const bool another = hello.version != MERON_VERSION;  // whose greeting may be longer
        if (!is_magic(hello.magic) || (record.bytes != sizeof(hello) && !another)) {
          return false;
        }
        apply_hello(rank, hello);
        break;
      }
      default:
        return false;
    }
  }
  return true;
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

}  // namespace meron

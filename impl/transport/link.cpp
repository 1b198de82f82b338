// SPDX-License-Identifier: Apache-2.0
// The side of a link that the engine uses: what is to be sent is queued here, and the transport is
// called in link_pump.cpp.
#include "transport/link.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "base/layout.h"
#include "base/status_name.h"
#include "transport/control.h"
#include "transport/make_room.h"

namespace meron {
namespace {

// Room for a half of the staging and its word.
constexpr uint64_t kControlMessage = kStagingChunk + 4096;

uint64_t control_message(uint64_t max_message) {
  return max_message == 0 ? kControlMessage : std::min(kControlMessage, max_message / 8 * 8);
}

}  // namespace

Link::Link(const meron_transport& table, int rank, int world_size, const Hello& own)
    : table_(table),
      name_(table.name != nullptr ? table.name : "custom"),
      rank_(rank),
      world_size_(world_size),
      control_bytes_(control_message(table.max_message)) {
  std::vector<int> others;
  for (int r = 0; r < world_size; ++r) {
    peers_.push_back(std::make_unique<Peer>());
    nodes_.push_back(r);
    relays_.push_back(r);
    via_local_peer_.push_back(false);
    if (r != rank) others.push_back(r);
  }
  static_assert(sizeof(Hello) % 8 == 0);
  peers_[static_cast<size_t>(rank)]->hello = own;
  append(others, Kind::hello, 0, &own, sizeof(own));
}

void Link::attach(std::shared_ptr<Window> window, std::vector<int> nodes) {
  std::map<int, std::vector<int>> members;
  for (int r = 0; r < world_size_; ++r) {
    auto& node = members[nodes[static_cast<size_t>(r)]];
    if (r == rank_) position_ = node.size();
    node.push_back(r);
  }
  const std::lock_guard pumping(pump_mutex_);
  const std::lock_guard queues(queue_mutex_);
  relays_.clear();
  for (const auto& [node, ranks] : members) relays_.push_back(ranks[position_ % ranks.size()]);
  const auto& local_peers = members[nodes[static_cast<size_t>(rank_)]];
  for (const auto& [node, ranks] : members) {
    for (size_t p = 0; p < ranks.size(); ++p) {
      via_local_peer_[static_cast<size_t>(ranks[p])] = local_peers[p % local_peers.size()] != rank_;
    }
  }
  nodes_ = std::move(nodes);
  window_ = std::move(window);
}

void Link::append(std::span<const int> ranks, Kind kind, uint64_t offset, const void* data,
                  uint64_t bytes) {
  const auto* from = static_cast<const std::byte*>(data);
  const uint64_t room = control_bytes_ - sizeof(Record);
  const uint64_t records = (bytes + room - 1) / room;
  const std::lock_guard lock(queue_mutex_);
  // Once to each node.
  std::vector<std::vector<std::byte>*> outboxes;
  std::vector<bool> told(relays_.size(), false);
  told[static_cast<size_t>(nodes_[static_cast<size_t>(rank_)])] = true;
  for (const int rank : ranks) {
    const auto node = static_cast<size_t>(nodes_[static_cast<size_t>(rank)]);
    if (told[node]) continue;
    told[node] = true;
    outboxes.push_back(&peers_[static_cast<size_t>(relays_[node])]->outbox);
  }
  // If memory runs out, no node gets a part of it.
  for (auto* const outbox : outboxes) make_room(*outbox, bytes + records * sizeof(Record));
  for (auto* const outbox : outboxes) {
    for (uint64_t at = 0; at < bytes; at += room) {
      const uint64_t part = std::min(room, bytes - at);
      const Record record{offset + at, static_cast<uint32_t>(part), kind};
      const auto* head = reinterpret_cast<const std::byte*>(&record);
      outbox->insert(outbox->end(), head, head + sizeof(record));
      outbox->insert(outbox->end(), from + at, from + at + part);
    }
  }
}

void Link::store(std::span<const int> ranks, uint64_t offset, uint64_t bytes) {
  append(ranks, Kind::data, offset, window_->writable(offset), bytes);
}

void Link::store_word(std::span<const int> ranks, uint64_t offset, uint64_t value) {
  append(ranks, Kind::word, offset, &value, sizeof(value));
}

void Link::claim_word(std::span<const int> ranks, uint64_t offset, uint32_t value) {
  const uint64_t wide = value;
  append(ranks, Kind::claim, offset, &wide, sizeof(wide));
}

void Link::queue(Transfer transfer) {
  const std::lock_guard lock(queue_mutex_);
  queued_.push_back(std::move(transfer));
  // Once it is queued: a message that is counted is sent or received.
  const Transfer& last = queued_.back();
  Batch& batch = *last.batch;
  const auto messages = messages_of(last);
  batch.left_.fetch_add(messages, std::memory_order_relaxed);
  if (last.to != nullptr) {
    batch.receives_[static_cast<size_t>(last.rank)].fetch_add(messages, std::memory_order_relaxed);
  }
}

void Link::send(const std::shared_ptr<Batch>& batch, int rank, uint64_t tag, const std::byte* data,
                uint64_t bytes, std::shared_ptr<const void> keep) {
  if (bytes == 0) return;
  queue({.batch = batch,
         .keep = std::move(keep),
         .from = data,
         .bytes = bytes,
         .tag = tag,
         .rank = rank});
}

void Link::receive(const std::shared_ptr<Batch>& batch, int rank, uint64_t tag, std::byte* data,
                   uint64_t bytes, std::shared_ptr<const void> keep) {
  if (bytes == 0) return;
  queue({.batch = batch,
         .keep = std::move(keep),
         .to = data,
         .bytes = bytes,
         .tag = tag,
         .rank = rank});
}

bool Link::gone(int rank) const {
  return rank != rank_ && peers_[static_cast<size_t>(rank)]->gone.load(std::memory_order_acquire);
}

std::string Link::reason(int rank) const {
  return std::string(status_name(peers_[static_cast<size_t>(rank)]->status.load()));
}

Result<bool> Link::met() const {
  {
    const std::lock_guard lock(queue_mutex_);
    if (stranger_) return *stranger_;
  }
  return unmet().empty();
}

std::vector<int> Link::unmet() const {
  std::vector<int> missing;
  for (int rank = 0; rank < world_size_; ++rank) {
    if (rank != rank_ && !peers_[static_cast<size_t>(rank)]->met.load()) missing.push_back(rank);
  }
  return missing;
}

}  // namespace meron

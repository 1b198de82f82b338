// SPDX-License-Identifier: Apache-2.0
#include "modules/emulated/transfer.h"

#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <string>

namespace meron::emulated {
namespace {

// A rank's first message: the launch's number, the number of all-gathers, the number of pieces for
// the peer. Then a description of each: the bytes and the place of an all-gather, the bytes of a
// piece.
constexpr size_t kCountsHeard = 3;
constexpr size_t kSaidOfGather = 2;

std::byte* bytes_of(std::vector<uint64_t>* words, size_t first) {
  return reinterpret_cast<std::byte*>(words->data() + first);
}

std::vector<const meron_exchange_piece*> to_receive(const Launch& launch, int32_t from) {
  std::vector<const meron_exchange_piece*> out;
  for (const meron_exchange_piece& piece : launch.pieces) {
    if (piece.peer == from && piece.receive_bytes > 0) out.push_back(&piece);
  }
  return out;
}

}  // namespace

Transfer::Transfer(int32_t rank, uint64_t number, const Launch& launch,
                   const std::vector<int>& sockets)
    : rank_(rank), number_(number), launch_(launch), lanes_(sockets.size()) {
  for (int32_t peer = 0; peer < static_cast<int32_t>(lanes_.size()); ++peer) {
    if (peer == rank_) continue;
    lanes_[peer].socket = sockets[peer];
    prepare(peer, &lanes_[peer]);
  }
  copy_own();
}

void Transfer::copy_own() const {
  for (const GatherPart& part : launch_.gathers) {
    std::byte* const to = part.to + static_cast<uint64_t>(rank_) * part.bytes;
    if (part.bytes > 0 && to != part.from) std::memcpy(to, part.from, part.bytes);
  }
  for (const meron_exchange_piece& piece : launch_.pieces) {
    if (piece.peer != rank_ || piece.send_bytes == 0 || piece.receive == piece.send) continue;
    std::memcpy(piece.receive, piece.send, piece.send_bytes);
  }
}

void Transfer::prepare(int32_t peer, Lane* lane) const {
  lane->said = {number_, launch_.gathers.size(), 0};
  for (const GatherPart& part : launch_.gathers) {
    lane->said.insert(lane->said.end(), {part.bytes, part.place});
  }
  for (const meron_exchange_piece& piece : launch_.pieces) {
    if (piece.peer == peer && piece.send_bytes > 0) lane->said.push_back(piece.send_bytes);
  }
  lane->said[2] = lane->said.size() - kCountsHeard - kSaidOfGather * launch_.gathers.size();
  lane->out.add(bytes_of(&lane->said, 0), lane->said.size() * sizeof(uint64_t));
  for (const GatherPart& part : launch_.gathers) lane->out.add(part.from, part.bytes);
  for (const meron_exchange_piece& piece : launch_.pieces) {
    if (piece.peer != peer) continue;
    lane->out.add(static_cast<const std::byte*>(piece.send), piece.send_bytes);
  }
  lane->heard.resize(kCountsHeard);
  lane->in.add(bytes_of(&lane->heard, 0), kCountsHeard * sizeof(uint64_t));
}

bool Transfer::done() const {
  return std::all_of(lanes_.begin(), lanes_.end(), [](const Lane& lane) {
    return lane.socket < 0 || (!lane.ended && lane.out.done() && lane.in.done());
  });
}

State Transfer::advance(const std::atomic<bool>& stop) {
  for (bool moved = true; moved && !stop;) {
    moved = false;
    for (int32_t peer = 0; peer < static_cast<int32_t>(lanes_.size()); ++peer) {
      Lane& lane = lanes_[peer];
      if (lane.socket < 0 || lane.ended) continue;
      if (send_some(&lane)) moved = true;
      if (!receive_some(&lane)) continue;
      moved = true;
      if (State state = go_on_reading(peer, &lane); state.status < 0) return state;
    }
  }
  return {};
}

bool Transfer::send_some(Lane* lane) const {
  if (lane->out.done()) return false;
  const ssize_t sent = uninterrupted([&] {
    return ::send(lane->socket, lane->out.data(), lane->out.bytes(), MSG_NOSIGNAL | MSG_DONTWAIT);
  });
  if (sent > 0) lane->out.take(static_cast<uint64_t>(sent));
  if (sent < 0 && errno != EAGAIN) lane->ended = true;
  return sent > 0;
}

bool Transfer::receive_some(Lane* lane) const {
  if (lane->in.done()) return false;
  const ssize_t got = uninterrupted(
      [&] { return ::recv(lane->socket, lane->in.data(), lane->in.bytes(), MSG_DONTWAIT); });
  if (got > 0) lane->in.take(static_cast<uint64_t>(got));
  if (got == 0 || (got < 0 && errno != EAGAIN)) lane->ended = true;
  return got > 0;
}

State Transfer::go_on_reading(int32_t peer, Lane* lane) const {
  if (lane->in.done() && lane->reading == Reading::kCounts) {
    if (State state = check_counts(peer, *lane); state.status < 0) return state;
    const uint64_t sizes = kSaidOfGather * lane->heard[1] + lane->heard[2];
    lane->heard.resize(kCountsHeard + sizes);
    lane->in.add(bytes_of(&lane->heard, kCountsHeard), sizes * sizeof(uint64_t));
    lane->reading = Reading::kSizes;
  }
  if (lane->in.done() && lane->reading == Reading::kSizes) {
    lane->reading = Reading::kBytes;
    return check_sizes(peer, lane);
  }
  return {};
}

State Transfer::check_counts(int32_t peer, const Lane& lane) const {
  if (lane.heard[0] != number_) {
    return {MERON_E_MISMATCH, "rank " + std::to_string(rank_) + " is at launch " +
                                  std::to_string(number_) + ", and rank " + std::to_string(peer) +
                                  " at " + std::to_string(lane.heard[0])};
  }
  if (lane.heard[1] != launch_.gathers.size()) {
    return differ(launch_.gathers.size(), peer, lane.heard[1], "all-gathers");
  }
  const size_t pieces = to_receive(launch_, peer).size();
  if (lane.heard[2] == pieces) return {};
  return differ(pieces, peer, lane.heard[2], "pieces to receive from the other");
}

State Transfer::check_sizes(int32_t peer, Lane* lane) const {
  const uint64_t* size = lane->heard.data() + kCountsHeard;
  for (const GatherPart& part : launch_.gathers) {
    if (*size != part.bytes) return differ(part.bytes, peer, *size, "bytes to gather");
    lane->in.add(part.to + static_cast<uint64_t>(peer) * part.bytes, *size++);
    if (*size != part.place) return differ_in_place(part, peer, *size);
    ++size;
  }
  for (const meron_exchange_piece* piece : to_receive(launch_, peer)) {
    if (*size != piece->receive_bytes) {
      return differ(piece->receive_bytes, peer, *size, "bytes in a piece");
    }
    lane->in.add(static_cast<std::byte*>(piece->receive), *size++);
  }
  return {};
}

State Transfer::differ_in_place(const GatherPart& part, int32_t peer, uint64_t others) const {
  const auto text = [](uint64_t place) {
    return place == GatherPart::kElsewhere ? std::string("outside of windows")
                                           : "at " + std::to_string(place) + " of a window";
  };
  return {MERON_E_MISMATCH, "in launch " + std::to_string(number_) + " rank " +
                                std::to_string(rank_) + " gathers " + text(part.place) +
                                ", and rank " + std::to_string(peer) + " " + text(others)};
}

State Transfer::differ(uint64_t own, int32_t peer, uint64_t others, const char* what) const {
  return {MERON_E_MISMATCH, "in launch " + std::to_string(number_) + " rank " +
                                std::to_string(rank_) + " has " + std::to_string(own) + " " + what +
                                ", and rank " + std::to_string(peer) + " has " +
                                std::to_string(others)};
}

void Transfer::add_waits(std::vector<pollfd>* out) const {
  for (const Lane& lane : lanes_) {
    if (lane.socket < 0 || lane.ended) continue;
    const int events = (lane.out.done() ? 0 : POLLOUT) | (lane.in.done() ? 0 : POLLIN);
    if (events != 0) out->push_back({lane.socket, static_cast<int16_t>(events), 0});
  }
}

}  // namespace meron::emulated

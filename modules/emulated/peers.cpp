// SPDX-License-Identifier: Apache-2.0
#include "modules/emulated/peers.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace meron::emulated {
namespace {

State no_socket(const char* what, int error) {
  return {MERON_E_IO, std::string(what) + ": " + std::strerror(error)};
}

State other_size(int32_t rank, int32_t size, int32_t others) {
  return {MERON_E_MISMATCH, "rank " + std::to_string(rank) + " opens it for " +
                                std::to_string(size) + " ranks, others for " +
                                std::to_string(others)};
}

}  // namespace

State Peers::listen() {
  const int error = listen_at(&listener_, name_of(rank_));
  if (error == 0) return {};
  if (error != EADDRINUSE) return no_socket("no socket to listen at", error);
  return {MERON_E_DUPLICATE, "rank " + std::to_string(rank_) + " was opened already"};
}

State Peers::look() {
  // Accepts callers even after all ranks have arrived: an extra one has another size, and gets an
  // error.
  if (State state = accept_callers(); state.status < 0) return state;
  if (State state = call_lower(); state.status < 0) return state;
  if (State state = hear(); state.status < 0) return state;
  if (ready()) return {};
  return {MERON_IN_PROGRESS,
          std::to_string(come_ + 1) + " of " + std::to_string(size_) + " ranks have come"};
}

State Peers::accept_callers() {
  while (listener_) {
    Descriptor caller;
    const int error = accept_at(&caller, listener_);
    if (error == ECONNABORTED) continue;
    if (error == EAGAIN) break;
    if (error != 0) return no_socket("no socket to a rank", error);
    if (is_of_same_user(caller)) callers_.push_back(std::move(caller));
  }
  for (Descriptor& caller : callers_) {
    Note hello;
    Descriptor data;
    const Heard heard = receive_note(caller, &hello, &data);
    if (heard == Heard::kNothing) continue;
    if (heard == Heard::kNote && hello.kind == Note::kHello) {
      if (State met = meet(&caller, hello, &data); met.status < 0) return met;
    }
    caller.reset();
  }
  callers_.erase(std::remove_if(callers_.begin(), callers_.end(),
                                [](const Descriptor& each) { return !each; }),
                 callers_.end());
  return {};
}

State Peers::meet(Descriptor* caller, const Note& hello, Descriptor* data) {
  if (hello.size != size_) {
    State differs = other_size(hello.rank, hello.size, size_);
    (void)send_note(*caller, failure_note(rank_, size_, differs));
    return ready() ? State{} : differs;
  }
  if (hello.rank <= rank_ || hello.rank >= size_ || peers_[hello.rank].come) return {};
  if (!*data) return no_socket("no socket for bytes", EMFILE);
  Peer& peer = peers_[hello.rank];
  peer.control = std::move(*caller);
  peer.data = std::move(*data);
  peer.come = true;
  ++come_;
  // If it has ended meanwhile, hear() notices it.
  (void)send_note(peer.control, note_of(Note::kHello, rank_, size_));
  return {};
}

State Peers::call_lower() {
  for (int32_t i = 0; i < rank_; ++i) {
    Peer& peer = peers_[i];
    if (peer.data) continue;
    const int error = connect_to(&peer.control, name_of(i));
    if (error == ECONNREFUSED || error == EAGAIN) continue;
    if (error != 0) return no_socket("no socket to a rank", error);
    if (!is_of_same_user(peer.control)) {
      return {MERON_E_IO, "rank " + std::to_string(i) + " is another user's"};
    }
    Descriptor theirs;
    if (const int none = make_pair(&peer.data, &theirs); none != 0) {
      return no_socket("no socket for bytes", none);
    }
    const int said = send_note(peer.control, note_of(Note::kHello, rank_, size_), &theirs);
    if (said != 0 && said != EPIPE && said != ECONNRESET) {
      return no_socket("a rank cannot be told", said);
    }
  }
  return {};
}

State Peers::hear() {
  for (int32_t i = 0; i < size_; ++i) {
    if (!peers_[i].data || peers_[i].silent) continue;
    if (State state = hear_from(i); state.status < 0) return state;
  }
  return {};
}

State Peers::hear_from(int32_t rank) {
  Peer& peer = peers_[rank];
  Note note;
  Descriptor none;
  while (!peer.silent) {
    const Heard heard = receive_note(peer.control, &note, &none);
    if (heard == Heard::kNothing) return {};
    if (heard == Heard::kEnd) {
      peer.silent = true;
      return end_of(rank);
    }
    if (note.kind == Note::kFailed && note.status < 0) return {note.status, note.text};
    if (note.kind == Note::kLeft) peer.left = note.launches;
    if (note.kind != Note::kHello) peer.silent = peer.excused = true;
    if (note.kind != Note::kHello || peer.come) continue;
    if (note.size != size_) return other_size(rank_, size_, note.size);
    peer.come = true;
    ++come_;
  }
  return {};
}

State Peers::left_before(int32_t rank, uint64_t number) const {
  const Peer& peer = peers_[rank];
  if (!peer.left || *peer.left >= number) return {};
  return {MERON_E_MISMATCH, "rank " + std::to_string(rank) + " closed it after " +
                                std::to_string(*peer.left) + " launches, and rank " +
                                std::to_string(rank_) + " has launch " + std::to_string(number)};
}

State Peers::end_of(int32_t rank) const {
  const Peer& peer = peers_[rank];
  if (deaf_ || peer.excused) return {};
  if (peer.come)
    return {MERON_E_PEER_DEAD, "the process of rank " + std::to_string(rank) + " has ended"};
  return {MERON_E_PEER_DEAD, "rank " + std::to_string(rank) + " has gone before all had come"};
}

void Peers::tell(const Note& note) {
  for (const Peer& peer : peers_) {
    if (peer.data) (void)send_note(peer.control, note);
  }
}

void Peers::leave() {
  listener_.reset();
  callers_.clear();
  for (Peer& peer : peers_) {
    peer.control.reset();
    peer.data.reset();
  }
}

void Peers::add_waits(std::vector<pollfd>* out) const {
  for (const Peer& peer : peers_) {
    if (peer.data && !peer.silent) out->push_back({peer.control.number(), POLLIN, 0});
  }
}

}  // namespace meron::emulated

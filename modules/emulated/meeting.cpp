// SPDX-License-Identifier: Apache-2.0
#include "modules/emulated/meeting.h"

#include <cstring>
#include <utility>

#include "modules/emulated/machine.h"

namespace meron::emulated {
namespace {

State differ(uint64_t number, int32_t one, uint64_t ones, int32_t other, uint64_t others,
             const char* what) {
  return {MERON_E_MISMATCH, "in launch " + std::to_string(number) + " rank " + std::to_string(one) +
                                " has " + std::to_string(ones) + " " + what + ", and rank " +
                                std::to_string(other) + " has " + std::to_string(others)};
}

// What `from` sends to `to`, in order.
std::vector<const meron_exchange_piece*> sent(const Launch& launch, int32_t to) {
  std::vector<const meron_exchange_piece*> out;
  for (const meron_exchange_piece& piece : launch.pieces) {
    if (piece.peer == to && piece.send_bytes > 0) out.push_back(&piece);
  }
  return out;
}

std::vector<const meron_exchange_piece*> received(const Launch& launch, int32_t from) {
  std::vector<const meron_exchange_piece*> out;
  for (const meron_exchange_piece& piece : launch.pieces) {
    if (piece.peer == from && piece.receive_bytes > 0) out.push_back(&piece);
  }
  return out;
}

// A list of copies, so that nothing is written where the ranks do not agree.
struct Copy {
  void* to;
  const void* from;
  uint64_t bytes;
};

}  // namespace

State Meeting::join(int32_t rank, int32_t size) {
  const std::lock_guard lock(mutex_);
  if (size != size_) {
    return {MERON_E_MISMATCH, "rank " + std::to_string(rank) + " opens it for " +
                                  std::to_string(size) + " ranks, others for " +
                                  std::to_string(size_)};
  }
  if (!joined_.emplace(rank, true).second) {
    return {MERON_E_DUPLICATE, "rank " + std::to_string(rank) + " was opened already"};
  }
  return {};
}

State Meeting::state_of(int32_t rank) const {
  if (failure_.status < 0) return failure_;
  if (aborted_[rank]) return {MERON_E_ABORTED, "it was aborted"};
  const auto come = static_cast<int32_t>(joined_.size());
  if (come == size_) return {};
  return {MERON_IN_PROGRESS,
          std::to_string(come) + " of " + std::to_string(size_) + " ranks have come"};
}

State Meeting::state(int32_t rank) {
  const std::lock_guard lock(mutex_);
  return state_of(rank);
}

uint64_t Meeting::ask(int32_t rank) {
  const std::lock_guard lock(mutex_);
  return ++asked_[rank];
}

void Meeting::fail(State failure) {
  if (failure_.status >= 0) failure_ = std::move(failure);
  changed_.notify_all();
}

void Meeting::run(int32_t rank, int32_t device, uint64_t number, const Launch& launch) {
  std::unique_lock lock(mutex_);
  if (launch.fails) {
    fail({MERON_E_IO, "launch " + std::to_string(number) + " of rank " + std::to_string(rank) +
                          " failed, as MERON_EMULATED_DEVICE asks"});
  }
  Step& step = steps_[number];
  step.launches.resize(size_);
  step.launches[rank] = &launch;
  ++step.arrived;
  changed_.notify_all();
  changed_.wait(lock, [&] { return (step.arrived == size_ && !step.dead) || has_ended(rank); });
  if (!has_ended(rank)) {
    ++step.copying;
    lock.unlock();
    State outcome = copy(rank, device, number, step);
    lock.lock();
    --step.copying;
    if (outcome.status < 0) {
      fail(std::move(outcome));
    } else {
      ++step.copied;
    }
    changed_.notify_all();
    changed_.wait(lock, [&] { return step.copied == size_ || has_ended(rank); });
  }
  // What this rank sends may be gone when this returns: nobody begins to read it, and who has begun
  // comes to an end.
  if (step.copied < size_) step.dead = true;
  changed_.wait(lock, [&] { return step.copying == 0; });
  ++done_[rank];
  changed_.notify_all();
  if (++step.left == size_) steps_.erase(number);
}

// Without the lock: no rank leaves a step while another copies in it.
State Meeting::copy(int32_t rank, int32_t device, uint64_t number, const Step& step) const {
  std::vector<Copy> copies;
  const Launch& own = *step.launches[rank];
  for (int32_t peer = 0; peer < size_; ++peer) {
    const Launch& other = *step.launches[peer];
    if (other.gathers.size() != own.gathers.size()) {
      return differ(number, rank, own.gathers.size(), peer, other.gathers.size(), "all-gathers");
    }
    for (size_t i = 0; i < own.gathers.size(); ++i) {
      const GatherPart &to = own.gathers[i], &from = other.gathers[i];
      if (to.bytes != from.bytes) {
        return differ(number, rank, to.bytes, peer, from.bytes, "bytes to gather");
      }
      copies.push_back({to.to + static_cast<uint64_t>(peer) * to.bytes, from.from, to.bytes});
    }
    const auto to = received(own, peer), from = sent(other, rank);
    if (to.size() != from.size()) {
      return differ(number, rank, to.size(), peer, from.size(), "pieces to receive from the other");
    }
    for (size_t i = 0; i < to.size(); ++i) {
      if (to[i]->receive_bytes != from[i]->send_bytes) {
        return differ(number, rank, to[i]->receive_bytes, peer, from[i]->send_bytes,
                      "bytes in a piece");
      }
      copies.push_back({to[i]->receive, from[i]->send, to[i]->receive_bytes});
    }
  }
  const bool moved = work_on(device, [&] {
    for (const Copy& each : copies) {
      if (each.bytes > 0 && each.to != each.from) std::memcpy(each.to, each.from, each.bytes);
    }
  });
  if (moved) return {};
  return {MERON_E_IO, "the device of rank " + std::to_string(rank) + " is broken"};
}

State Meeting::drain(int32_t rank, std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  const bool all = changed_.wait_for(
      lock, timeout, [&] { return done_[rank] == asked_[rank] || has_ended(rank); });
  if (has_ended(rank)) return aborted_[rank] ? State{} : failure_;
  if (all) return {};
  return {MERON_E_TIMEOUT, "launch " + std::to_string(done_[rank] + 1) +
                               " has not ended: its stream waits, or a peer has not come to it"};
}

void Meeting::abort(int32_t rank, bool alone) {
  const std::lock_guard lock(mutex_);
  aborted_[rank] = true;
  if (!alone) fail({MERON_E_ABORTED, "rank " + std::to_string(rank) + " aborted it"});
  changed_.notify_all();
}

}  // namespace meron::emulated

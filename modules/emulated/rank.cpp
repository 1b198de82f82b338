// SPDX-License-Identifier: Apache-2.0
#include "modules/emulated/rank.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "modules/emulated/machine.h"

namespace meron::emulated {

State Rank::open() {
  wake_ = Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_) return {MERON_E_IO, std::string("no event: ") + std::strerror(errno)};
  const std::lock_guard lock(mutex_);
  if (State listening = peers_.listen(); listening.status < 0) return listening;
  (void)look();  // waiting peers are notified now; state() reports errors
  return {};
}

State Rank::look() {
  if (!has_ended()) {
    State found = peers_.look();
    if (found.status >= 0) return found;
    fail(std::move(found));
  }
  return failure_.status < 0 ? failure_ : State{MERON_E_ABORTED, "it was aborted"};
}

State Rank::state() {
  const std::lock_guard lock(mutex_);
  return look();
}

// `told`: to the peers.
void Rank::stop(const State& told) {
  const bool silent = told.status == MERON_E_ABORTED && alone_;
  peers_.tell(silent ? note_of(Note::kSilent, rank_, size_) : failure_note(rank_, size_, told));
  stopped_ = true;
  (void)::eventfd_write(wake_.number(), 1);
  changed_.notify_all();
}

void Rank::fail(State failure) {
  if (has_ended()) return;
  failure_ = std::move(failure);
  stop(failure_);
}

uint64_t Rank::ask() {
  const std::lock_guard lock(mutex_);
  return ++asked_;
}

void Rank::run(uint64_t number, const Launch& launch) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_ + 1 == number || has_ended(); });
  if (!has_ended()) {
    running_ = true;
    lock.unlock();
    State outcome = move(number, launch);
    lock.lock();
    running_ = false;
    if (outcome.status < 0) fail(std::move(outcome));
  }
  ++done_;
  changed_.notify_all();
}

State Rank::move(uint64_t number, const Launch& launch) {
  if (launch.fails) {
    return {MERON_E_IO, "launch " + std::to_string(number) + " of rank " + std::to_string(rank_) +
                            " failed, as MERON_EMULATED_DEVICE asks"};
  }
  State outcome;
  if (work_on(device_, [&] { outcome = exchange(number, launch); })) return outcome;
  return {MERON_E_IO, "the device of rank " + std::to_string(rank_) + " is broken"};
}

State Rank::exchange(uint64_t number, const Launch& launch) {
  std::vector<int> sockets;
  for (int32_t peer = 0; peer < size_; ++peer) sockets.push_back(peers_.data(peer));
  Transfer transfer(rank_, number, launch, sockets);
  std::vector<pollfd> waits;
  while (true) {
    if (State moved = transfer.advance(stopped_); moved.status < 0) return moved;
    if (transfer.done()) return {};
    waits.assign(1, {wake_.number(), POLLIN, 0});
    {
      const std::lock_guard lock(mutex_);
      if (State state = look_at(number, transfer); state.status < 0) return state;
      peers_.add_waits(&waits);
    }
    transfer.add_waits(&waits);
    (void)::poll(waits.data(), waits.size(), -1);  // by a signal too: it is looked at anew
  }
}

// Why launch `number` will not be done.
State Rank::look_at(uint64_t number, const Transfer& transfer) {
  if (State state = look(); state.status < 0) return state;
  for (int32_t peer = 0; peer < size_; ++peer) {
    if (State left = peers_.left_before(peer, number); left.status < 0) return left;
    if (!transfer.has_ended(peer)) continue;
    if (State end = peers_.end_of(peer); end.status < 0) return end;
  }
  return {};
}

State Rank::drain(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  const auto over = [&] { return done_ == asked_ || has_ended(); };
  const auto end = std::chrono::steady_clock::now() + timeout;
  // A launch that has not begun does not read notes of peers, so this does it from time to time.
  while (!over() && std::chrono::steady_clock::now() < end) {
    const auto soon = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
    if (!changed_.wait_until(lock, std::min(soon, end), over)) (void)look();
  }
  if (has_ended()) return aborted_ ? State{} : failure_;
  if (over()) return {};
  return {MERON_E_TIMEOUT, "launch " + std::to_string(done_ + 1) +
                               " has not ended: its stream waits, or a peer has not come to it"};
}

void Rank::abort() {
  std::unique_lock lock(mutex_);
  if (!has_ended()) stop({MERON_E_ABORTED, "rank " + std::to_string(rank_) + " aborted it"});
  aborted_ = true;
  changed_.wait(lock, [&] { return !running_; });
}

void Rank::leave() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !running_; });
  if (!has_ended()) {
    if (peers_.ready()) {
      Note left = note_of(Note::kLeft, rank_, size_);
      left.launches = done_;
      peers_.tell(left);
    } else {
      (void)look();  // notifies waiting callers, too
      fail({MERON_E_ABORTED,
            "rank " + std::to_string(rank_) + " closed it before all ranks had come"});
    }
    aborted_ = true;
  }
  peers_.leave();
}

}  // namespace meron::emulated

// SPDX-License-Identifier: Apache-2.0
// The thread of a context that saves: it copies states into bounded memory, writes, and agrees with
// the other ranks' threads, over a channel on which nothing else is called. So the trainer's calls
// are neither kept waiting nor reordered.
//
// It calls none of the trainer's functions, and never pumps: waiting threads do, or the thread of
// the link (progress_thread.h).
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>

#include "base/held.h"
#include "call_log/channel.h"
#include "engine/save_operation.h"
#include "saving/exchange.h"

namespace meron {

class Context;

class SaveThread {
 public:
  // The context outlives it.
  explicit SaveThread(Context& context);
  // Abandons a save under way, without a message to peers. It publishes no checkpoint.
  ~SaveThread();
  SaveThread(const SaveThread&) = delete;
  SaveThread& operator=(const SaveThread&) = delete;

  // Under the context's lock, as all that follows.
  bool has_channel() const { return channel_ != nullptr; }
  void use(std::unique_ptr<Channel> channel) { channel_ = std::move(channel); }
  Channel& channel() { return *channel_; }
  // None is under way.
  void begin(std::shared_ptr<SaveOperation> save);
  // The last one begun; null: none.
  const std::shared_ptr<SaveOperation>& last() const { return last_; }
  bool under_way() const { return last_ != nullptr && !last_->ended(); }
  // Ends the save under way on all ranks, unless all have written their files.
  void cancel();
  // True if some rank still copies states and has made progress lately: it is late, not dead.
  bool some_rank_copies(int64_t now);

 private:
  class Peers;
  // Words in which ranks see how far this one is. That of progress has signs in its lower half, and
  // in the upper one the number of the last save that the rank has cancelled.
  std::atomic<uint64_t>& progress_word() { return channel_->own().norm_step[0]; }
  std::atomic<uint64_t>& copied_word() { return channel_->own().norm_step[1]; }
  void run();
  Status perform(SaveOperation& save, Peers& peers);
  void end_holds(SaveOperation& save);
  void give_sign();
  // The first member that has cancelled the save that was begun last; -1: none.
  int cancelled_by() const;
  Error cancelled_error(const SaveOperation& save, int member) const;
  // Longest time without a sign of progress. A drive's own timeout ends a transfer before.
  int64_t patience_ns() const;

  Context& context_;
  std::unique_ptr<Channel> channel_;  // null until the first save
  std::shared_ptr<SaveOperation> last_;
  uint64_t begun_ = 0;   // saves
  uint64_t seen_ = 0;    // signs of progress of all ranks, and
  int64_t seen_ns_ = 0;  // when that changed last
  std::mutex mutex_;     // guards next_; a leaf
  std::condition_variable wake_;
  std::shared_ptr<SaveOperation> next_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace meron

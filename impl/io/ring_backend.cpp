// SPDX-License-Identifier: Apache-2.0
// Transfers through io_uring: one thread owns the ring and does all there is to do with it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <system_error>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/human_bytes.h"
#include "io/fault_plan.h"
#include "io/io_backend.h"
#include "os/host.h"
#include "os/io_ring.h"
#include "os/process.h"
#include "os/threads.h"

namespace meron {
namespace {

// A registered range, in as many slots as the kernel's limit per slot requires.
struct Registered {
  uint64_t bytes = 0;
  std::vector<uint32_t> slots;
};

// What the engine's thread is asked to do with the ring, beside transfers.
using Action = std::function<void(IoRing&)>;
struct Actions {
  std::vector<Action> waiting;
  uint64_t posted = 0, done = 0;
};

// Of requests to the kernel.
struct Tags {
  std::vector<Piece> pieces;  // by tag; what is under way has a transfer
  std::vector<uint32_t> free;
};

class RingBackend final : public IoBackend, public std::enable_shared_from_this<RingBackend> {
 public:
  RingBackend(const IoOptions& options, std::shared_ptr<IoShared> shared)
      : options_(options), shared_(std::move(shared)) {}

  // The ring belongs to the thread that sets it up, so the thread starts first.
  Status start() {
    const MaskSignalsScope masked;
    try {
      thread_ = std::thread([self = shared_from_this()] {
        set_thread_name("meron-io");
        self->run();
      });
    } catch (const std::system_error& error) {
      return no_thread_error(error.code().value());
    }
    std::unique_lock lock(mutex_);
    answered_.wait(lock, [&] { return started_.has_value(); });
    if (started_->ok()) return Ok{};
    lock.unlock();
    thread_.join();
    return std::move(*started_);
  }

  std::string name() const override { return name_; }

  void submit(std::shared_ptr<Transfer> transfer) override {
    std::unique_lock lock(mutex_);
    if (left_) {
      lock.unlock();
      return transfer->ticket->end(broken_ ? *broken_ : closed_error(*transfer));
    }
    requested_.push_back(std::move(transfer));
    // With all requests under way a new transfer has to wait anyway.
    wake_if(lock, asleep_ && has_room_);
  }

  void add_file(IoFile& file) override {
    run_on_ring_thread([&](IoRing& ring) { file.slot = ring.add_file(file.file().fd()); }, true);
    if (file.slot == IoRing::kNone) return;
    file.on_close([weak = weak_from_this(), slot = file.slot] {
      const auto self = weak.lock();
      // Transfers end on the engine's thread, and a file with them: it cannot wait for itself.
      if (self) self->run_on_ring_thread([slot](IoRing& ring) { ring.remove_file(slot); }, false);
    });
  }

  bool register_buffer(std::byte* data, uint64_t bytes) override {
    // Shared, because a ring that breaks ends this wait before the action has run.
    const auto pinned = std::make_shared<std::atomic<bool>>(false);
    run_on_ring_thread(
        [this, pinned, data, bytes](IoRing& ring) { *pinned = pin(ring, data, bytes); }, true);
    return *pinned;
  }

  void unregister_buffer(std::byte* data) override {
    run_on_ring_thread([&](IoRing& ring) { unpin(ring, data); }, true);
  }

  void close() override {
    {
      std::unique_lock lock(mutex_);
      closing_ = Deadline::after(kCloseNs);
      wake_if(lock, asleep_);
    }
    thread_.join();
  }

 private:
  void wake_if(std::unique_lock<std::mutex>& lock, bool sleeps) {
    if (!sleeps) return;
    asleep_ = false;
    ring_->wake();
    lock.unlock();
  }

  // Runs it on the engine's thread, before any transfer that is requested later.
  void run_on_ring_thread(Action action, bool and_wait) {
    // In a fork there is no such thread, and a lock may be held for ever.
    if (process_id() != owner_pid_) return;
    std::unique_lock lock(mutex_);
    if (left_) return;
    actions_.waiting.push_back(std::move(action));
    const uint64_t number = ++actions_.posted;
    if (asleep_) {
      asleep_ = false;
      ring_->wake();
    }
    if (and_wait) answered_.wait(lock, [&] { return actions_.done >= number || left_; });
  }

  // The rest runs on the engine's thread.

  void run() {
    auto made = IoRing::create(options_.depth);
    {
      const std::lock_guard lock(mutex_);
      if (made.ok()) {
        ring_ = std::move(made).value();
        name_ = fmt::format("io_uring with {}", ring_->text());
        started_.emplace(Ok{});
      } else {
        started_.emplace(std::move(made).error());
      }
      left_ = !started_->ok();
    }
    answered_.notify_all();
    if (!ring_) return;
    tags_.pieces.resize(options_.depth);
    for (uint32_t tag = options_.depth; tag-- > 0;) tags_.free.push_back(tag);
    while (step()) {
    }
    leave();
  }

  uint32_t under_way() const { return options_.depth - static_cast<uint32_t>(tags_.free.size()); }

  // Takes requests, begins as many as it can, and waits for a completion. False once there
  // is nothing left to do and closing has begun.
  bool step() {
    take();
    begin();
    int64_t timeout_ns = -1;
    {
      const std::lock_guard lock(mutex_);
      if (!actions_.waiting.empty() ||
          (!requested_.empty() && !tags_.free.empty() && waiting_.empty())) {
        return true;
      }
      if (closing_) {
        const bool idle = requested_.empty() && waiting_.empty() && under_way() == 0;
        if (idle || closing_->passed()) return false;
        timeout_ns = closing_->remaining();
      }
      has_room_ = waiting_.empty() && !tags_.free.empty();
      asleep_ = true;
    }
    Status waited = ring_->submit_and_wait(timeout_ns);
    {
      const std::lock_guard lock(mutex_);
      asleep_ = false;
    }
    if (!waited.ok()) {
      broken_ = std::move(waited).error();
      return false;
    }
    std::array<IoRing::Completion, 64> ended;
    for (size_t count = ended.size(); count == ended.size();) {
      count = ring_->reap(ended);
      for (size_t i = 0; i < count; ++i) complete(ended[i]);
    }
    return true;
  }

  void take() {
    std::deque<std::shared_ptr<Transfer>> requested;
    std::vector<Action> actions;
    {
      const std::lock_guard lock(mutex_);
      requested.swap(requested_);
      actions.swap(actions_.waiting);
    }
    for (auto& transfer : requested) waiting_.push_back(std::move(transfer));
    if (actions.empty()) return;
    for (const Action& action : actions) action(*ring_);
    {
      const std::lock_guard lock(mutex_);
      actions_.done += actions.size();
    }
    answered_.notify_all();
  }

  void begin() {
    if (!options_.overlap_events && under_way() != 0) return;
    while (!waiting_.empty() && !tags_.free.empty()) {
      const std::shared_ptr<Transfer> transfer = waiting_.front();
      // It may have failed since its last piece was cut.
      if (transfer->cut()) {
        waiting_.pop_front();
        continue;
      }
      const uint32_t tag = tags_.free.back();
      tags_.free.pop_back();
      tags_.pieces[tag] = cut_piece(transfer, options_.block);
      if (transfer->cut()) waiting_.pop_front();
      request(tag);
    }
  }

  // The queue of the ring has room for every tag.
  void request(uint32_t tag) {
    const Piece& piece = tags_.pieces[tag];
    const IoFile& file = *piece.transfer->file;
    const int fd = piece.fd();
    (void)ring_->prepare({.write = piece.transfer->write,
                          .fd = fd,
                          .file_slot = fd == file.file().fd() ? file.slot : IoRing::kNone,
                          .buffer_slot = slot_of(piece.data(), piece.bytes),
                          .offset = piece.file_offset(),
                          .data = piece.data(),
                          .bytes = static_cast<uint32_t>(piece.bytes),
                          .tag = tag});
    if (options_.single_submit) (void)ring_->submit();  // the next wait reports a refusal
  }

  void complete(const IoRing::Completion& completion) {
    if (file_fault(FileCall::reap) != 0) return;
    Piece& piece = tags_.pieces[completion.tag];
    shared_->count_request(piece.direct);
    std::optional<Error> error;
    const int64_t result = with_fault(piece.transfer->write, piece.bytes, completion.result);
    if (settle(piece, result, error) == Settled::again) {
      const int64_t pause = retry_pause_ns(piece.retries);
      if (pause != 0) std::this_thread::sleep_for(std::chrono::nanoseconds(pause));
      return request(completion.tag);
    }
    const std::shared_ptr<Transfer> transfer = std::exchange(piece.transfer, nullptr);
    tags_.free.push_back(completion.tag);
    if (finish_piece(*transfer, std::move(error))) shared_->end(*transfer);
  }

  // Ends the remaining transfers with an error, and wakes all that wait for this thread.
  void leave() {
    std::deque<std::shared_ptr<Transfer>> left;
    {
      const std::lock_guard lock(mutex_);
      left_ = true;
      left.swap(requested_);
    }
    answered_.notify_all();
    for (auto& transfer : waiting_) left.push_back(std::move(transfer));
    waiting_.clear();
    // A transfer may be both waiting to be cut further and have pieces under way.
    for (Piece& piece : tags_.pieces) {
      if (piece.transfer) left.push_back(std::exchange(piece.transfer, nullptr));
    }
    ring_.reset();
    for (const auto& transfer : left) {
      if (transfer->ticket->done()) continue;
      if (transfer->under_way != 0) {
        // The kernel may still use its memory: callers know that by the code alone.
        transfer->error = held_error(*transfer, transfer->error ? transfer->error : broken_);
      } else if (!transfer->error) {
        transfer->error = broken_ ? *broken_ : closed_error(*transfer);
      }
      shared_->end(*transfer);
    }
  }

  uint32_t slot_of(const std::byte* data, uint64_t bytes) const {
    const auto after = buffers_.upper_bound(data);
    if (after == buffers_.begin()) return IoRing::kNone;
    const auto& [start, range] = *std::prev(after);
    const auto at = static_cast<uint64_t>(data - start);
    if (at + bytes > range.bytes) return IoRing::kNone;
    const uint64_t slot = at / IoRing::kMaxBufferBytes;
    if ((at + bytes - 1) / IoRing::kMaxBufferBytes != slot) return IoRing::kNone;
    return range.slots[slot];
  }

  // Whether all of it was registered.
  bool pin(IoRing& ring, std::byte* data, uint64_t bytes) {
    if (!ring.takes_buffers()) return false;
    unpin(ring, data);
    Registered range{.bytes = bytes, .slots = {}};
    bool all = true;
    for (uint64_t at = 0; at < bytes; at += IoRing::kMaxBufferBytes) {
      auto slot = ring.add_buffer(data + at, std::min(bytes - at, IoRing::kMaxBufferBytes));
      // If one slot is refused, the others remain useful.
      range.slots.push_back(slot.ok() ? *slot : IoRing::kNone);
      all = all && slot.ok() && *slot != IoRing::kNone;
      if (!slot.ok()) tell_unregistered(slot.error(), bytes);
    }
    buffers_.emplace(data, std::move(range));
    return all;
  }

  void unpin(IoRing& ring, std::byte* data) {
    const auto found = buffers_.find(data);
    if (found == buffers_.end()) return;
    for (const uint32_t slot : found->second.slots) {
      if (slot != IoRing::kNone) ring.remove_buffer(slot);
    }
    buffers_.erase(found);
  }

  // Only the first refusal is logged.
  void tell_unregistered(const Error& error, uint64_t bytes) {
    if (std::exchange(warned_unregistered_, true)) return;
    if (error.code() != MERON_E_NO_MEMORY) {
      return shared_->notice(
          fmt::format("{}; storage works without, at a little more CPU time", error.info().what));
    }
    const uint64_t limit = memlock_limit();
    shared_->notice(fmt::format(
        "{} of memory cannot be registered with the kernel, for at most {} may be locked "
        "(RLIMIT_MEMLOCK); storage works without, at a little more CPU time. Raise the limit: "
        "ulimit -l",
        human_bytes(bytes), limit == kNoLimit ? "what is free" : human_bytes(limit)));
  }

  const IoOptions options_;
  const std::shared_ptr<IoShared> shared_;
  const int32_t owner_pid_ = process_id();
  std::thread thread_;
  std::string name_;  // does not change after start()

  // The engine's thread alone, but for IoRing::wake. Others call that under mutex_ while asleep_,
  // when the ring is there.
  std::unique_ptr<IoRing> ring_;
  std::deque<std::shared_ptr<Transfer>> waiting_;  // not cut; the front is being cut
  Tags tags_;
  std::map<const std::byte*, Registered, std::less<>> buffers_;
  bool warned_unregistered_ = false;
  std::optional<Error> broken_;  // why the ring takes no more; does not change once left_

  std::mutex mutex_;  // guards all below
  std::condition_variable answered_;
  std::optional<Status> started_;
  std::deque<std::shared_ptr<Transfer>> requested_;
  Actions actions_;
  bool asleep_ = false, has_room_ = false;
  bool left_ = false;  // the thread does nothing more
  std::optional<Deadline> closing_;
};

}  // namespace

Result<std::shared_ptr<IoBackend>> make_ring_backend(const IoOptions& options,
                                                     std::shared_ptr<IoShared> shared) {
  auto made = std::make_shared<RingBackend>(options, std::move(shared));
  MERON_TRY(made->start());
  return std::shared_ptr<IoBackend>(std::move(made));
}

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
// Transfers through io_uring: one thread owns the ring and does all there is to do with it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "io/fault_plan.h"
#include "io/io_backend.h"
#include "io/registered_buffers.h"
#include "os/io_ring.h"
#include "os/process.h"
#include "os/threads.h"

namespace meron {
namespace {

// Work on the ring for the engine's thread, other than transfers.
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
        begin_thread("meron-io");
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
    requested_.push(std::move(transfer));
    // With all requests under way a new transfer has to wait anyway.
    wake_if(lock, asleep_ && has_room_);
  }

  void add_file(IoFile& file) override {
    run_on_ring_thread([&](IoRing& ring) { file.slot = ring.add_file(file.file().fd()); }, true);
    if (file.slot == IoRing::kNone) return;
    file.on_close([weak = weak_from_this(), slot = file.slot] {
      const auto self = weak.lock();
      if (!self) return;
      try {
        // Transfers end on the engine's thread, and a file with them: it cannot wait for itself.
        self->run_on_ring_thread([slot](IoRing& ring) { ring.remove_file(slot); }, false);
      } catch (const std::bad_alloc&) {
        // The end of the ring releases the slot, and the kernel's reference to the file.
      }
    });
  }

  bool register_buffer(std::byte* data, uint64_t bytes) override {
    // Shared, because a ring that breaks ends this wait before the action has run.
    const auto pinned = std::make_shared<std::atomic<bool>>(false);
    run_on_ring_thread(
        [this, pinned, data, bytes](IoRing& ring) {
          try {
            *pinned = buffers_.add(ring, data, bytes);
          } catch (const std::bad_alloc&) {
            // It is used unregistered.
          }
        },
        true);
    return *pinned;
  }

  void unregister_buffer(std::byte* data) override {
    run_on_ring_thread([&](IoRing& ring) { buffers_.remove(ring, data); }, true);
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

  // Runs it on the engine's thread, before any transfer that is requested later. It does not throw.
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
    Status made = Ok{};
    try {
      made = set_up();
    } catch (const std::bad_alloc&) {
      made = std::move(no_memory_);
    }
    const bool well = made.ok();
    if (!well) ring_.reset();
    {
      const std::lock_guard lock(mutex_);
      started_.emplace(std::move(made));
      left_ = !well;
    }
    answered_.notify_all();
    if (!well) return;
    try {
      while (step()) {
      }
    } catch (const std::bad_alloc&) {
      broken_ = std::move(no_memory_);
    }
    leave();
  }

  // Takes all memory that the thread needs while nothing fails.
  Status set_up() {
    tags_.pieces.resize(options_.depth);
    for (uint32_t tag = options_.depth; tag-- > 0;) tags_.free.push_back(tag);
    MERON_ASSIGN(ring_, IoRing::create(options_.depth));
    name_ = fmt::format("io_uring with {}", ring_->text());
    return Ok{};
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
    std::vector<Action> actions;
    {
      const std::lock_guard lock(mutex_);
      waiting_.append(requested_);
      actions.swap(actions_.waiting);
    }
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
        waiting_.pop();
        continue;
      }
      const uint32_t tag = tags_.free.back();
      tags_.free.pop_back();
      tags_.pieces[tag] = cut_piece(transfer, options_.block);
      if (transfer->cut()) waiting_.pop();
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
                          .buffer_slot = buffers_.slot_of(piece.data(), piece.bytes),
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
    const Settled how = settle(piece, result, error);
    if (how == Settled::again) {
      const int64_t pause = retry_pause_ns(piece.retries);
      if (pause != 0) std::this_thread::sleep_for(std::chrono::nanoseconds(pause));
      return request(completion.tag);
    }
    const std::shared_ptr<Transfer> transfer = std::exchange(piece.transfer, nullptr);
    tags_.free.push_back(completion.tag);
    if (finish_piece(*transfer, how, std::move(error))) shared_->end(*transfer);
  }

  // Ends the remaining transfers with an error, and wakes all that wait for this thread.
  void leave() {
    {
      const std::lock_guard lock(mutex_);
      left_ = true;
      asleep_ = false;
      waiting_.append(requested_);
    }
    answered_.notify_all();
    ring_.reset();
    while (const auto transfer = waiting_.pop()) end_early(*transfer);
    // A transfer may have been waiting to be cut further and have pieces under way.
    for (Piece& piece : tags_.pieces) {
      if (const auto transfer = std::exchange(piece.transfer, nullptr)) end_early(*transfer);
    }
  }

  void end_early(Transfer& transfer) {
    if (transfer.ticket->done()) return;
    if (transfer.under_way != 0) {
      // The kernel may still use its memory: callers know that by the code alone.
      fail(transfer, MERON_E_CLOSED,
           [&] { return held_error(transfer, transfer.error ? transfer.error : broken_); });
    } else if (!transfer.failed()) {
      fail(transfer, broken_ ? broken_->code() : MERON_E_CLOSED,
           [&] { return broken_ ? *broken_ : closed_error(transfer); });
    }
    shared_->end(transfer);
  }

  const IoOptions options_;
  const std::shared_ptr<IoShared> shared_;
  const int32_t owner_pid_ = process_id();
  std::thread thread_;
  std::string name_;  // does not change after start()
  Error no_memory_{MERON_E_NO_MEMORY, "the process has no memory left to read and write files",
                   "free memory"};  // made before it is needed; of the engine's thread

  // The engine's thread alone, but for IoRing::wake. Others call that under mutex_ while asleep_,
  // when the ring is there.
  std::unique_ptr<IoRing> ring_;
  TransferQueue waiting_;  // not cut; the front is being cut
  Tags tags_;
  RegisteredBuffers buffers_{*shared_};
  std::optional<Error> broken_;  // why the ring takes no more; does not change once left_

  std::mutex mutex_;  // guards all below
  std::condition_variable answered_;
  std::optional<Status> started_;
  TransferQueue requested_;
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

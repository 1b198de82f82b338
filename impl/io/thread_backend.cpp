// SPDX-License-Identifier: Apache-2.0
// Transfers by pread and pwrite, one request per thread at a time.
#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "io/fault_plan.h"
#include "io/io_backend.h"
#include "os/threads.h"

namespace meron {
namespace {

// Longest time for which close() waits for requests that the kernel has. One that takes longer will
// not end soon.
constexpr int64_t kStuckNs = 1'000'000'000;

class ThreadBackend final : public IoBackend, public std::enable_shared_from_this<ThreadBackend> {
 public:
  ThreadBackend(const IoOptions& options, std::shared_ptr<IoShared> shared, std::string name)
      : options_(options), shared_(std::move(shared)), name_(std::move(name)) {}

  // Threads keep the backend, so that one that a device holds for ever finds it when it returns.
  Status start() {
    const MaskSignalsScope masked;
    const std::lock_guard lock(mutex_);
    threads_.reserve(static_cast<size_t>(options_.threads));
    try {
      for (; working_ < options_.threads; ++working_) {
        threads_.emplace_back([self = shared_from_this()] {
          begin_thread("meron-io");
          self->work();
        });
      }
    } catch (const std::system_error& error) {
      // Fewer do the same, in more time.
      if (threads_.empty()) return no_thread_error(error.code().value());
    } catch (const std::bad_alloc&) {
      if (threads_.empty()) throw;
    }
    return Ok{};
  }

  std::string name() const override { return name_; }

  void submit(std::shared_ptr<Transfer> transfer) override {
    {
      const std::lock_guard lock(mutex_);
      waiting_.push(std::move(transfer));
    }
    changed_.notify_one();
  }

  void add_file(IoFile&) override {}
  bool register_buffer(std::byte*, uint64_t) override { return false; }
  void unregister_buffer(std::byte*) override {}

  void close() override {
    TransferQueue late;
    bool stuck = false;
    {
      std::unique_lock lock(mutex_);
      const auto left = [&] { return working_ == 0; };
      closing_ = true;
      changed_.notify_all();
      if (!ended_.wait_for(lock, std::chrono::nanoseconds(kCloseNs), left)) {
        while (auto transfer = waiting_.pop()) {
          fail(*transfer, MERON_E_CLOSED, [&] { return closed_error(*transfer); });
          // One with pieces under way ends with them.
          if (transfer->under_way == 0) late.push(std::move(transfer));
        }
        stuck = !ended_.wait_for(lock, std::chrono::nanoseconds(kStuckNs), left);
      }
    }
    for (std::thread& thread : threads_) {
      if (stuck) {
        thread.detach();
      } else {
        thread.join();
      }
    }
    while (const auto transfer = late.pop()) shared_->end(*transfer);
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return closing_ || !waiting_.empty(); });
      if (waiting_.empty()) break;
      const std::shared_ptr<Transfer> transfer = waiting_.front();
      Piece piece = cut_piece(transfer, options_.block);
      if (transfer->cut()) waiting_.pop();
      lock.unlock();
      std::optional<Error> error;
      const Settled how = move(piece, error);
      lock.lock();
      const bool ended = finish_piece(*transfer, how, std::move(error));
      if (how == Settled::failed && waiting_.front() == transfer) waiting_.pop();
      if (!ended) continue;
      lock.unlock();
      piece.transfer.reset();
      shared_->end(*transfer);
      lock.lock();
    }
    if (--working_ == 0) ended_.notify_all();
  }

  Settled move(Piece& piece, std::optional<Error>& error) {
    while (true) {
      const bool write = piece.transfer->write;
      const int64_t moved =
          write ? write_at(piece.fd(), piece.data(), piece.bytes, piece.file_offset())
                : read_at(piece.fd(), piece.data(), piece.bytes, piece.file_offset());
      shared_->count_request(piece.direct);
      const Settled settled = settle(piece, with_fault(write, piece.bytes, moved), error);
      if (settled != Settled::again) return settled;
      const int64_t pause = piece.retries == 0 ? 0 : retry_pause_ns(piece.retries);
      if (pause != 0) std::this_thread::sleep_for(std::chrono::nanoseconds(pause));
    }
  }

  const IoOptions options_;
  const std::shared_ptr<IoShared> shared_;
  const std::string name_;
  std::vector<std::thread> threads_;

  std::mutex mutex_;  // guards all below, and what the pieces of a transfer share
  std::condition_variable changed_, ended_;
  TransferQueue waiting_;  // not cut; the front is being cut
  int working_ = 0;        // threads that have not left
  bool closing_ = false;
};

}  // namespace

Result<std::shared_ptr<IoBackend>> make_thread_backend(const IoOptions& options,
                                                       std::shared_ptr<IoShared> shared,
                                                       const std::string& why) {
  auto made = std::make_shared<ThreadBackend>(
      options, std::move(shared),
      fmt::format("{} thread{} ({})", options.threads, options.threads == 1 ? "" : "s", why));
  MERON_TRY(made->start());
  return std::shared_ptr<IoBackend>(std::move(made));
}

}  // namespace meron

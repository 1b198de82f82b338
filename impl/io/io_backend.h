// SPDX-License-Identifier: Apache-2.0
// Private to io/: who works on transfers, and what an engine's faces and threads share.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "io/io_engine.h"
#include "io/transfer.h"

namespace meron {

// Thread-safe.
class IoShared {
 public:
  // Ends the ticket of a completed transfer, and calls its listener. Holds no lock of a backend
  // meanwhile.
  void end(Transfer& transfer);
  void on_end(std::function<void()> wake);

  // Said once, however often it is met.
  void notice(const std::string& text);
  std::vector<std::string> take_notices();

  void count_request(bool direct);
  IoCounters counters() const;

 private:
  std::mutex wake_mutex_;  // held while wake_ runs, so that none runs once it was replaced
  std::function<void()> wake_;
  std::mutex notice_mutex_;
  std::vector<std::string> notices_;
  std::set<std::string> said_;
  std::atomic<uint64_t> bytes_read_{0}, bytes_written_{0}, requests_{0}, direct_requests_{0};
};

// Thread-safe but for close().
class IoBackend {
 public:
  virtual ~IoBackend() = default;
  virtual std::string name() const = 0;

  virtual void submit(std::shared_ptr<Transfer> transfer) = 0;
  virtual void add_file(IoFile& file) = 0;
  // Returns true if all of it was registered.
  virtual bool register_buffer(std::byte* data, uint64_t bytes) = 0;
  virtual void unregister_buffer(std::byte* data) = 0;

  // Completes the requests, for at most kCloseNs; those that have not ended by then end with
  // MERON_E_CLOSED. Ends all threads, except one that the device blocks. No request may follow.
  virtual void close() = 0;
};

inline constexpr int64_t kCloseNs = 5'000'000'000;

// Error of a transfer that close() cancelled.
Error closed_error(const Transfer& transfer);
// The same of one that the kernel has not released: its memory must not be used again. `before`:
// the error that it met earlier, if any.
Error held_error(const Transfer& transfer, const std::optional<Error>& before);
Error no_thread_error(int error);

Result<std::shared_ptr<IoBackend>> make_ring_backend(const IoOptions& options,
                                                     std::shared_ptr<IoShared> shared);
Result<std::shared_ptr<IoBackend>> make_thread_backend(const IoOptions& options,
                                                       std::shared_ptr<IoShared> shared,
                                                       const std::string& why);

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
// io_uring for reading and writing files: one thread prepares, submits and waits, any thread may
// wake it. The ring may do nothing else: where the kernel has restrictions it refuses every other
// operation, so that this descriptor is of no use to who takes it over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"

namespace meron {

// Belongs to the thread that created it; only wake() may be called from others.
class IoRing {
 public:
  // The kernel's bound for one registered buffer.
  static constexpr uint64_t kMaxBufferBytes = 1ull << 30;
  static constexpr uint32_t kMaxDepth = 4096;
  static constexpr uint32_t kNone = UINT32_MAX;  // no slot

  struct Request {
    bool write = false;
    int fd = -1;                   // used where file_slot is kNone
    uint32_t file_slot = kNone;    // of add_file
    uint32_t buffer_slot = kNone;  // of add_buffer: `data` is completely in that buffer
    uint64_t offset = 0;
    std::byte* data = nullptr;
    uint32_t bytes = 0;
    uint32_t tag = 0;  // returned in the completion
  };
  struct Completion {
    uint32_t tag = 0;
    int32_t result = 0;  // bytes moved, or -errno
  };

  // For at most `depth` requests at a time. Proves that the ring works by waking itself, so that a
  // host that forbids any part of it is reported: MERON_E_UNSUPPORTED with the reason, or
  // MERON_E_NO_MEMORY where memory or descriptors lack.
  static Result<std::unique_ptr<IoRing>> create(uint32_t depth);
  // Requests under way are cancelled where the device can; wait for them first.
  ~IoRing();
  IoRing(const IoRing&) = delete;
  IoRing& operator=(const IoRing&) = delete;

  // Granted features, for messages: "registered files and buffers".
  std::string text() const;
  bool takes_buffers() const;

  // Files and buffers that the kernel looks up and pins once instead of at each request: a slot, or
  // kNone where there are too many or the kernel has no such table. A slot must be released; what
  // is under way may still use it then.
  uint32_t add_file(int fd);
  void remove_file(uint32_t slot);
  // At most kMaxBufferBytes. The pages that the memory has now stay in use: remove the buffer
  // before its pages are released. Errors: MERON_E_NO_MEMORY beyond RLIMIT_MEMLOCK.
  Result<uint32_t> add_buffer(std::byte* data, uint64_t bytes);
  void remove_buffer(uint32_t slot);

  // False when `depth` requests are prepared and not yet submitted.
  bool prepare(const Request& request);
  Status submit();
  // Submits what is prepared, then waits until something ended, wake() was called, or
  // `timeout_ns` passed (negative: no bound).
  Status submit_and_wait(int64_t timeout_ns);
  // Takes what has ended; returns how many.
  size_t reap(std::span<Completion> out);

  // Ends a submit_and_wait, the current or the next one. Any thread, while the ring exists.
  void wake();

 private:
  struct State;
  explicit IoRing(std::unique_ptr<State> state);
  void arm();

  std::unique_ptr<State> state_;
};

}  // namespace meron

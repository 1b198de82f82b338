// SPDX-License-Identifier: Apache-2.0
// Files by their names: reads and writes of any bytes of them through an IoEngine, begun and waited
// for, as DeepSpeed's DeepNVMe offers them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "base/result.h"
#include "io/io_engine.h"
#include "os/mapping.h"

namespace meron {

// Page-aligned memory, pinned by the kernel if possible, and zero at first. It may be released
// while the drive still uses it, because requests hold it.
class IoMemory {
 public:
  ~IoMemory();
  IoMemory(const IoMemory&) = delete;
  IoMemory& operator=(const IoMemory&) = delete;

  std::byte* data() { return mapping_.data(); }
  uint64_t bytes() const { return bytes_; }
  bool registered() const { return registered_; }

 private:
  friend class FileIo;
  IoMemory() = default;

  Mapping mapping_;
  uint64_t bytes_ = 0;
  bool registered_ = false;
  std::weak_ptr<IoEngine> engine_;
};

// One read or write that was begun. Thread-safe.
class IoRequest {
 public:
  ~IoRequest();
  IoRequest(const IoRequest&) = delete;
  IoRequest& operator=(const IoRequest&) = delete;

  bool done() const { return ticket_->done(); }
  // As IoTicket::status().
  Status status() const { return ticket_->status(); }
  const std::string& path() const { return path_; }

 private:
  friend class FileIo;
  IoRequest() = default;

  uint64_t number_ = 0;
  std::string path_;
  std::shared_ptr<IoTicket> ticket_;
  std::shared_ptr<IoMemory> memory_;  // null where the memory is the caller's own
};

// Thread-safe. As for the engine's transfers (io_engine.h), requests that touch the same bytes must
// not be under way at the same time if one of them writes.
class FileIo {
 public:
  // `timeout_ns`: after so long without anything moving a wait ends with MERON_E_TIMEOUT. Errors:
  // those of IoEngine::create.
  static Result<std::shared_ptr<FileIo>> open(const IoOptions& options, int64_t timeout_ns);
  ~FileIo();
  FileIo(const FileIo&) = delete;
  FileIo& operator=(const FileIo&) = delete;

  // Begin a request. The memory must stay until it has ended. A read beyond the end of the file is
  // refused here; a write makes the file, or as much longer as it must be. Errors: those of
  // DirectFile::open and extend, MERON_E_IO for a read beyond the end, MERON_E_CLOSED.
  Result<std::shared_ptr<IoRequest>> read(const std::string& path, uint64_t offset, std::byte* data,
                                          uint64_t bytes);
  Result<std::shared_ptr<IoRequest>> write(const std::string& path, uint64_t offset,
                                           const std::byte* data, uint64_t bytes);

  // True if it has ended well by `timeout_ns` from now (negative: as long as something moves), or
  // its error, which is reported once: wait_all and close do not report it again.
  Result<bool> wait(const std::shared_ptr<IoRequest>& request, int64_t timeout_ns);

  // The same for all requests that were not waited for individually. An error is reported when all
  // have ended: the first, with the number of the others.
  Result<bool> wait_all(int64_t timeout_ns);

  // Ends what is under way, for at most five seconds, or ten where a drive does not answer at all.
  // MERON_E_CLOSED or MERON_E_TIMEOUT if a drive has held a request for longer: its memory must not
  // be used again. Else the first error of requests that were never waited for.
  Status close();

  // Zeros, registered with the kernel where that is granted. Errors: MERON_E_NO_MEMORY.
  Result<std::shared_ptr<IoMemory>> allocate(uint64_t bytes);

  struct Info {
    IoOptions options;  // `backend` is the one in use
    IoCounters counters;
    uint64_t requests = 0;      // that were begun
    uint64_t pending = 0;       // of them, those not waited for
    uint64_t memory_bytes = 0;  // of allocate()
  };
  Result<Info> info();
  // For people, several lines: the backend, why it is not the fastest, and files that are not read
  // and written past the page cache.
  Result<std::string> describe();

 private:
  FileIo(const IoOptions& options, int64_t timeout_ns, std::shared_ptr<IoEngine> engine);
  Result<std::shared_ptr<IoEngine>> engine() const;
  Result<std::shared_ptr<IoRequest>> begin(bool write, const std::string& path, uint64_t offset,
                                           std::byte* data, uint64_t bytes);
  std::shared_ptr<IoMemory> memory_of(const std::byte* data, uint64_t bytes);
  void forget_memory_that_is_gone();
  std::shared_ptr<IoRequest> first_under_way() const;
  // Ok if some transfer has progressed within the timeout.
  Status check_moving(const std::string& path);
  // Removes ended requests from the list. Returns the first MERON_E_CLOSED, else the first error.
  Status take_ended();

  const IoOptions options_;
  const int64_t timeout_ns_;

  mutable std::shared_mutex engine_mutex_;  // shared while a request is handed to the engine
  std::shared_ptr<IoEngine> engine_;        // null once closed

  mutable std::mutex mutex_;  // guards all below
  uint64_t next_number_ = 0;
  std::map<uint64_t, std::shared_ptr<IoRequest>> pending_;  // begun and not waited for
  std::map<const std::byte*, std::weak_ptr<IoMemory>, std::less<>> memory_;
  uint64_t seen_requests_ = 0;
  int64_t moved_ns_ = 0;  // when it was last seen that something moved, or was begun
  std::vector<std::string> notices_;
  std::map<std::string, std::string, std::less<>> buffered_;  // path -> why
};

}  // namespace meron

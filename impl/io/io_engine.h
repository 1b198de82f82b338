// SPDX-License-Identifier: Apache-2.0
// Reads and writes files beside the threads that compute: through io_uring, or where that is
// forbidden with threads of its own. Both do the same to the last byte and error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "io/io_file.h"
#include "io/io_ticket.h"
#include "os/direct_file.h"

namespace meron {

class IoBackend;
class IoShared;
struct Transfer;

struct IoOptions {
  enum class Backend {
    automatic,  // io_uring, else threads
    uring,
    threads,
  };

  uint32_t block = 1 << 20;  // bytes of a request to the kernel, a multiple of 4096
  uint32_t depth = 32;       // requests under way at a time
  int threads = 1;           // of the backend of threads: as many requests are under way
  Backend backend = Backend::automatic;
  bool single_submit = false;  // hand the kernel each request as it is made, not what has gathered
  bool overlap_events = true;  // false: the next `depth` requests begin when the last have ended
};

// Of what has ended. A request is one to the kernel.
struct IoCounters {
  uint64_t bytes_read = 0;
  uint64_t bytes_written = 0;
  uint64_t requests = 0;
  uint64_t direct_requests = 0;  // of them, past the page cache
};

// Thread-safe. Transfers begin in the order of their requests, run at the same time, and
// end in any order: who needs one before another waits. Two that touch the same bytes, one of them
// writing, must not be under way at the same time.
//
// In a fork of the process that created it nothing happens: tickets end with MERON_E_FORKED.
class IoEngine {
 public:
  // Errors: MERON_E_ARGUMENT for options out of range; what refuses io_uring where that alone was
  // requested.
  static Result<std::shared_ptr<IoEngine>> create(const IoOptions& options = {});

  // Completes the requests first, for at most five seconds, and ends all threads. Requests that a
  // failing device holds longer end with MERON_E_CLOSED; their memory must not be used again.
  ~IoEngine();
  IoEngine(const IoEngine&) = delete;
  IoEngine& operator=(const IoEngine&) = delete;

  // The file is closed when its last holder has released it and its last transfer has ended. It
  // must not be used with another engine.
  Result<std::shared_ptr<IoFile>> add(DirectFile file);

  // Best effort: the kernel pins the memory once instead of at every request. Memory that cannot be
  // registered works too; if a limit is the reason, notices() reports it once, with the need and
  // the limit. The pages that the memory has now stay in use until unregister_buffer, so a range
  // must be unregistered, by its start, before its pages are returned to the host. Both wait for
  // the engine's thread, not for transfers. Returns true if all of it was registered.
  bool register_buffer(std::byte* data, uint64_t bytes);
  void unregister_buffer(std::byte* data);

  // Begin a transfer. `data` must stay until the ticket has ended. Any address, offset and length
  // will do; multiples of the page are fast (see transfer.h). No error is lost: the ticket has it.
  std::shared_ptr<IoTicket> read(const std::shared_ptr<IoFile>& file, uint64_t offset,
                                 std::byte* data, uint64_t bytes);
  std::shared_ptr<IoTicket> write(const std::shared_ptr<IoFile>& file, uint64_t offset,
                                  const std::byte* data, uint64_t bytes);

  // `wake` is called after each ticket that ends, from a thread of the engine's, one call at a
  // time; not for those that have ended when read() or write() returns, refused or empty. It must
  // be short, and must neither call on_end nor release the engine. Once this returns the former
  // one is not called any more.
  void on_end(std::function<void()> wake);

  IoOptions::Backend kind() const;  // never automatic
  // "io_uring with registered files and buffers", "1 thread (cannot set io_uring up: ...)"
  std::string backend() const;
  // Reasons why I/O is slower here than it could be, for the user; each is returned once.
  std::vector<std::string> take_notices();
  IoCounters counters() const;

 private:
  IoEngine(std::shared_ptr<IoShared> shared, std::shared_ptr<IoBackend> backend,
           IoOptions::Backend kind);
  bool forked() const;
  std::shared_ptr<IoTicket> begin(bool write, const std::shared_ptr<IoFile>& file, uint64_t offset,
                                  std::byte* data, uint64_t bytes);

  const int32_t owner_pid_;
  std::shared_ptr<IoShared> shared_;
  std::shared_ptr<IoBackend> backend_;
  std::string name_;
  IoOptions::Backend kind_;
};

}  // namespace meron

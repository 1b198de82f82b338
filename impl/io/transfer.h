// SPDX-License-Identifier: Apache-2.0
// Private to io/: how one read or write becomes requests to the kernel, and what their results
// mean. Free of system calls and threads, so both backends do the same.
//
// Direct I/O needs full pages of aligned memory. Other bytes go through the page cache: at most the
// two edges of a transfer if memory and file are aligned alike. A direct piece covers full pages of
// the file, and a buffered piece covers no page of another transfer's direct piece. So transfers of
// disjoint bytes never use one page through both descriptors; the kernel would not keep it
// coherent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include "base/result.h"
#include "io/io_file.h"
#include "io/io_ticket.h"

namespace meron {

// The transfer of a ticket. Guarded by the backend that works on it.
struct Transfer {
  bool write = false;
  std::shared_ptr<IoFile> file;
  uint64_t offset = 0;
  std::byte* data = nullptr;  // only read where `write`
  uint64_t bytes = 0;
  std::shared_ptr<IoTicket> ticket;

  uint64_t next = 0;  // where the next piece begins, from the transfer's start
  uint32_t under_way = 0;
  std::optional<Error> error;      // the first; no piece is cut after it
  meron_status unsaid = MERON_OK;  // its code in place of it, where memory for the error lacks

  std::shared_ptr<Transfer> after;  // in its TransferQueue

  bool failed() const { return error.has_value() || unsaid != MERON_OK; }
  bool cut() const { return failed() || next == bytes; }
  bool ended() const { return cut() && under_way == 0; }
};

// The error that `make` returns. None where the process has no memory for it: a thread of the
// engine must outlive that.
template <class Make>
std::optional<Error> say(const Make& make) {
  try {
    return make();
  } catch (const std::bad_alloc&) {
    return std::nullopt;
  }
}

// Gives a transfer the error that `make` returns, or `code` alone.
template <class Make>
void fail(Transfer& transfer, meron_status code, const Make& make) {
  transfer.error = say(make);
  transfer.unsaid = transfer.error ? MERON_OK : code;
}

// First in, first out, and without memory of its own. A transfer is in one queue at most.
class TransferQueue {
 public:
  TransferQueue() = default;
  ~TransferQueue() {
    while (pop()) {
    }
  }
  TransferQueue(const TransferQueue&) = delete;
  TransferQueue& operator=(const TransferQueue&) = delete;

  bool empty() const { return first_ == nullptr; }
  const std::shared_ptr<Transfer>& front() const { return first_; }
  void push(std::shared_ptr<Transfer> transfer);
  std::shared_ptr<Transfer> pop();  // null where there is none
  void append(TransferQueue& others);

 private:
  std::shared_ptr<Transfer> first_;
  Transfer* last_ = nullptr;  // where there is a first
};

// One request to the kernel.
struct Piece {
  std::shared_ptr<Transfer> transfer;
  uint64_t begin = 0;  // from the transfer's start
  uint64_t bytes = 0;
  bool direct = false;
  uint32_t retries = 0;  // since it last moved on

  uint64_t file_offset() const { return transfer->offset + begin; }
  std::byte* data() const { return transfer->data + begin; }
  int fd() const {
    const DirectFile& file = transfer->file->file();
    return direct ? file.fd() : file.buffered_fd();
  }
};

// The next piece of at most `block` bytes of a transfer that is not cut(). Counts it as under way.
Piece cut_piece(const std::shared_ptr<Transfer>& transfer, uint64_t block);

enum class Settled {
  done,    // all of it was moved
  again,   // repeat the request for what remains of `piece`
  failed,  // with the error that settle() gave, unless memory for it lacks
};

// Interprets the kernel's result for `piece` (bytes moved, or -errno). Does not touch the state
// that the pieces of a transfer share.
Settled settle(Piece& piece, int64_t result, std::optional<Error>& error);

// How long to wait before asking again, after that many retries: a resource that lacks for longer
// is not requested in a loop.
int64_t retry_pause_ns(uint32_t retries);

// Takes a piece that is done or failed off its transfer; whether the transfer ended with it.
bool finish_piece(Transfer& transfer, Settled how, std::optional<Error> error);

}  // namespace meron

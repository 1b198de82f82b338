// SPDX-License-Identifier: Apache-2.0
#include "io/transfer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "base/clock.h"
#include "base/human_bytes.h"
#include "base/layout.h"
#include "os/system_error.h"

namespace meron {
namespace {

constexpr uint32_t kRetriesAtOnce = 16;
constexpr uint32_t kMaxRetries = 1000;

std::string_view advice_for(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return "free some space, or name a directory on another disk";
    case EIO:
      return "the device or its file system failed: look at the kernel's log, and name a directory "
             "on another disk";
    case EFBIG:
      return "raise the limit on file sizes (ulimit -f)";
    default:
      return "";
  }
}

Error failure(const Piece& piece, int error) {
  std::string what =
      fmt::format("cannot {} {} bytes at offset {}", piece.transfer->write ? "write" : "read",
                  piece.bytes, piece.file_offset());
  if (error == ENOSPC) {
    what += fmt::format(", where the file system has {} free",
                        human_bytes(piece.transfer->file->file().free_bytes()));
  }
  return system_error(what, error, std::string(advice_for(error))).on(piece.transfer->file->path());
}

Error ended_early(const Piece& piece) {
  if (piece.transfer->write) {
    return Error(MERON_E_IO, fmt::format("cannot write {} bytes at offset {}: none were taken",
                                         piece.bytes, piece.file_offset()))
        .on(piece.transfer->file->path());
  }
  return Error(MERON_E_IO,
               fmt::format("the file is shorter than {} bytes: cannot read {} at offset {}",
                           piece.file_offset() + piece.bytes, piece.bytes, piece.file_offset()),
               "another program has cut it, or it was never written that far")
      .on(piece.transfer->file->path());
}

}  // namespace

void TransferQueue::push(std::shared_ptr<Transfer> transfer) {
  Transfer* const added = transfer.get();
  (first_ ? last_->after : first_) = std::move(transfer);
  last_ = added;
}

std::shared_ptr<Transfer> TransferQueue::pop() {
  std::shared_ptr<Transfer> popped = std::move(first_);
  first_ = popped ? std::move(popped->after) : nullptr;
  return popped;
}

void TransferQueue::append(TransferQueue& others) {
  if (others.empty()) return;
  (first_ ? last_->after : first_) = std::move(others.first_);
  last_ = others.last_;
  others.first_ = nullptr;
}

Piece cut_piece(const std::shared_ptr<Transfer>& transfer, uint64_t block) {
  Piece piece;
  piece.transfer = transfer;
  piece.begin = transfer->next;
  const DirectFile& file = transfer->file->file();
  const uint64_t left = transfer->bytes - transfer->next;
  const uint64_t align = file.offset_alignment();
  const uint64_t offset = piece.file_offset();
  const uint64_t past = offset % align;  // the last page's start
  const auto address = reinterpret_cast<uintptr_t>(piece.data());
  // Address of the file's page start in memory. Unsigned arithmetic wraps, which does not matter
  // for a power of two.
  const bool alike = (address - past) % file.memory_alignment() == 0;
  piece.bytes = std::min(left, block);
  if (transfer->file->direct() && alike) {
    if (past != 0) {
      piece.bytes = std::min(left, align - past);
    } else if (left >= align) {
      piece.direct = true;
      piece.bytes = std::min(left / align * align, round_up(block, align));
    }
  }
  transfer->next += piece.bytes;
  ++transfer->under_way;
  return piece;
}

Settled settle(Piece& piece, int64_t result, std::optional<Error>& error) {
  if (result < 0) {
    const int number = static_cast<int>(-result);
    if ((number == EINTR || number == EAGAIN) && piece.retries < kMaxRetries) {
      ++piece.retries;
      return Settled::again;
    }
    // Refused by the requirements of direct I/O on file and memory: the page cache has none. Pages
    // of other transfers are full pages of their own, as above.
    if (number == EINVAL && piece.direct) {
      piece.transfer->file->stop_direct();
      piece.direct = false;
      return Settled::again;
    }
    error = say([&] { return failure(piece, number); });
    return Settled::failed;
  }
  auto moved = static_cast<uint64_t>(result);
  if (moved >= piece.bytes) {
    const IoFile& file = *piece.transfer->file;
    if (!piece.direct && !file.keeps_cached()) {
      file.file().drop_behind(piece.file_offset(), piece.bytes);
    }
    return Settled::done;
  }
  if (moved == 0) {
    error = say([&] { return ended_early(piece); });
    return Settled::failed;
  }
  if (piece.direct) {
    // The remainder must be full pages too. If no page was moved, for example at the end of the
    // file, the page cache determines the length.
    const uint64_t align = piece.transfer->file->file().offset_alignment();
    moved = moved / align * align;
    if (moved == 0) piece.direct = false;
  }
  piece.retries = 0;
  piece.begin += moved;
  piece.bytes -= moved;
  return Settled::again;
}

int64_t retry_pause_ns(uint32_t retries) {
  return retries <= kRetriesAtOnce ? 0 : kNanosPerMilli;
}

bool finish_piece(Transfer& transfer, Settled how, std::optional<Error> error) {
  if (how == Settled::failed && !transfer.failed()) {
    transfer.error = std::move(error);
    if (!transfer.error) transfer.unsaid = MERON_E_NO_MEMORY;
  }
  --transfer.under_way;
  return transfer.ended();
}

}  // namespace meron

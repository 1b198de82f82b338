// SPDX-License-Identifier: Apache-2.0
#include "offload/parked_buffers.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "base/clock.h"
#include "io/drive_error.h"

namespace meron {
namespace {

constexpr uint64_t kPiece = 16 << 20;  // a multiple of kSwapBlock
constexpr size_t kPieces = 4;          // under way at a time

}  // namespace

Result<std::unique_ptr<ParkedBuffers>> ParkedBuffers::write(Storage& storage, Counters& counters,
                                                            int64_t timeout_ns,
                                                            const std::vector<Buffer>& buffers) {
  std::unique_ptr<ParkedBuffers> parked(new ParkedBuffers(storage, counters, timeout_ns));
  for (const Buffer& buffer : buffers) {
    MERON_ASSIGN(const Extent extent,
                 storage.swap().allocate(buffer.bytes, Deadline::after(timeout_ns)));
    parked->extents_.push_back(extent);
    parked->bytes_ += extent.bytes;
    add(counters.nvme.held, extent.bytes);
  }
  MERON_TRY(parked->move(true, buffers));
  return parked;
}

ParkedBuffers::~ParkedBuffers() {
  // A drive that has not answered may still write there.
  if (held_) return;
  for (const Extent& extent : extents_) storage_.swap().free(extent);
  counters_.nvme.held.fetch_sub(bytes_);
}

Status ParkedBuffers::read(const std::vector<Buffer>& buffers) {
  return move(false, buffers);
}

Status ParkedBuffers::move(bool out, const std::vector<Buffer>& buffers) {
  struct Piece {
    std::shared_ptr<IoTicket> transfer;
    uint64_t offset;
    std::byte* data;
    uint64_t bytes;
  };
  std::deque<Piece> under_way;
  const auto settle = [&](size_t most_left) -> Status {
    Status first = Ok{};
    while (under_way.size() > most_left) {
      const Piece piece = std::move(under_way.front());
      under_way.pop_front();
      if (!piece.transfer->wait(timeout_ns_)) {
        held_ = true;
        return drive_silent_error(storage_.path(), timeout_ns_);
      }
      Status ended = piece.transfer->status();
      if (ended.ok() && !out) {
        ended = storage_.swap().verify(piece.offset, piece.data, piece.bytes);
      }
      add(out ? counters_.nvme.written : counters_.nvme.read, piece.bytes);
      if (!ended.ok() && first.ok()) {
        first = std::move(ended);
        most_left = 0;  // nothing may be under way where this returns
      }
    }
    return first;
  };
  for (size_t i = 0; i < buffers.size(); ++i) {
    const Buffer& buffer = buffers[i];
    for (uint64_t at = 0; at < buffer.bytes; at += kPiece) {
      Piece piece{.transfer = nullptr,
                  .offset = extents_[i].offset + at,
                  .data = buffer.data + at,
                  .bytes = std::min(kPiece, buffer.bytes - at)};
      IoEngine& engine = storage_.engine();
      if (out) {
        storage_.swap().seal(piece.offset, piece.data, piece.bytes);
        piece.transfer = engine.write(storage_.file(), piece.offset, piece.data, piece.bytes);
      } else {
        piece.transfer = engine.read(storage_.file(), piece.offset, piece.data, piece.bytes);
      }
      under_way.push_back(std::move(piece));
      MERON_TRY(settle(kPieces - 1));
    }
  }
  return settle(0);
}

}  // namespace meron

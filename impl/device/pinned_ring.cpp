// SPDX-License-Identifier: Apache-2.0
#include "device/pinned_ring.h"

#include <utility>

#include "base/held.h"

namespace meron {

PinnedRing::~PinnedRing() {
  for (Piece& piece : pieces_) {
    piece.pinned.reset();
    arena_.release(piece.buffer);
  }
}

bool PinnedRing::grow() {
  if (refused_) return false;
  const Recess recess;  // the upload that grows it has it for itself: see `busy`
  auto buffer = arena_.allocate(kPieceBytes, MemoryKind::staging, "copies to the device",
                                Arena::Starts::at_page);
  if (!buffer.ok()) {
    refused_ = true;
    return false;
  }
  // DeviceSide::pin has reported the reason of a failure for other memory.
  PinnedRange pinned = device_.pin(buffer->data, kPieceBytes, nullptr);
  if (!pinned) {
    arena_.release(*buffer);
    refused_ = true;
    return false;
  }
  // In front of the one that was sent first: it is taken next.
  pieces_.insert(pieces_.begin() + static_cast<ptrdiff_t>(next_),
                 Piece{*buffer, std::move(pinned), {}});
  return true;
}

bool PinnedRing::usable() {
  return !pieces_.empty() || grow();
}

Result<std::byte*> PinnedRing::take() {
  if (!usable()) return Error(MERON_E_INTERNAL, "no memory is pinned for copies to the device");
  MERON_ASSIGN(const bool free, pieces_[next_].sent.come());
  if (free || (pieces_.size() < kPieces && grow())) return pieces_[next_].buffer.data;
  return static_cast<std::byte*>(nullptr);
}

Status PinnedRing::send(std::byte* to, uint64_t bytes, void* stream) {
  Piece& piece = pieces_[next_];
  MERON_TRY(device_.copy(to, piece.buffer.data, bytes, stream));
  MERON_ASSIGN(piece.sent, device_.record(stream, std::move(piece.sent)));
  next_ = (next_ + 1) % pieces_.size();
  ++sent_;
  return Ok{};
}

bool PinnedRing::half_sent() {
  if (sent_ < (pieces_.size() + 1) / 2) return false;
  sent_ = 0;
  return true;
}

}  // namespace meron

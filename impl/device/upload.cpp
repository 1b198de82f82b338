// SPDX-License-Identifier: Apache-2.0
#include "device/upload.h"

#include <algorithm>

#include "base/held.h"
#include "kernels/cpu/copy.h"

namespace meron {
namespace {

// Fewer bytes are not worth waking a thread for.
constexpr uint64_t kInlineBytes = 256 << 10;

}  // namespace

Status Upload::advance(ThreadPool& threads) {
  Status asked = ask(threads);
  if (!asked.ok()) drop();
  return asked;
}

// Pieces go in the order in which they are taken: one upload at a time works with the ring.
Status Upload::ask(ThreadPool& threads) {
  PinnedRing& ring = side_.ring();
  if (ring.busy) return Ok{};
  ring.busy = true;
  Status asked = ask(threads, ring);
  ring.busy = false;
  return asked;
}

Status Upload::ask(ThreadPool& threads, PinnedRing& ring) {
  for (; !copies_.empty(); copies_.pop_front()) {
    Copy& copy = copies_.front();
    if (!ring.usable()) {
      MERON_TRY(side_.device().copy(copy.to, copy.from, copy.bytes, side_.up()));
      continue;
    }
    while (copy.bytes > 0) {
      MERON_ASSIGN(std::byte* const piece, ring.take());
      if (piece == nullptr) return Ok{};
      const uint64_t bytes = std::min(copy.bytes, PinnedRing::kPieceBytes);
      {
        const Recess recess(bytes >= kInlineBytes);
        threads.for_range(0, bytes, 4096, kInlineBytes, [&](int, uint64_t begin, uint64_t end) {
          kernels::copy(piece + begin, copy.from + begin, end - begin);
        });
      }
      MERON_TRY(ring.send(copy.to, bytes, side_.up()));
      if (ring.half_sent()) MERON_TRY(side_.wake_right_after(side_.up()));
      copy.to += bytes;
      copy.from += bytes;
      copy.bytes -= bytes;
    }
  }
  return Ok{};
}

}  // namespace meron

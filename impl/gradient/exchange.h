// SPDX-License-Identifier: Apache-2.0
// Makes the bytes of peers readable in a reduction: in place if the ranks share memory, staged over
// a link, or by the devices' own collectives. See host_exchange.h and device_exchange.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "call_log/channel.h"
#include "gradient/memory.h"

namespace meron {

// The bytes that this rank and one peer exchange.
struct ExchangePiece {
  size_t flat = 0;
  int member = 0;                   // index of the peer on the axis
  const std::byte* give = nullptr;  // the bytes that the peer reads of this rank
  uint64_t give_bytes = 0;
  // This rank's counterpart of the bytes that it reads of the peer. All ranks lay out gradients
  // alike, so it gives their offset in the peer's memory.
  const std::byte* alike = nullptr;
  uint64_t take_bytes = 0;
  std::byte* to = nullptr;  // where the bytes are received; null: the exchange chooses
};

struct ExchangeStep {
  Step step = Step::shards;
  Channel* axis = nullptr;
  bool same = false;  // all peers read the same bytes of this rank
  // In the order of flats. Each flat has one piece per member of the axis other than this rank, in
  // the members' order.
  std::vector<ExchangePiece> pieces;
  std::vector<size_t> first;  // by flat: the index of its first piece

  const ExchangePiece& of(size_t flat, int member) const {
    const bool behind = member > axis->index();
    return pieces[first[flat] + static_cast<size_t>(member) - (behind ? 1 : 0)];
  }
};

class GradientExchange {
 public:
  virtual ~GradientExchange() = default;

  // Begins a step. The previous one is done, and the bytes that this rank gives are complete.
  virtual Status begin(ExchangeStep step) = 0;
  // True if the Place can read the step's bytes. Never waits.
  virtual Result<bool> done() = 0;
  // Returns the bytes of a flat that another member gave in the last step, which is done.
  virtual const std::byte* at(size_t flat, int member) const = 0;
  // Reports to the peers that this rank has read all of their bytes.
  virtual void consumed() = 0;
  // True if no peer still reads a sum that the caller may change once the reduction has ended.
  virtual Result<bool> parted() = 0;
  // Breaks the group with `error`, so that peers stop waiting. Returns the error that holds.
  virtual Error fail(const Error& error) = 0;
  // Members of the reduction's channel that this rank waits for.
  virtual std::vector<int> missing() const = 0;
};

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
// How the bytes of peers become readable in a reduction: in place, where ranks share memory;
// staged, over a link; or by the devices' own collectives. host_exchange.cpp and
// device_exchange.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "call_log/channel.h"
#include "gradient/memory.h"

namespace meron {

// What one rank and a peer have of each other.
struct ExchangePiece {
  size_t flat = 0;
  int member = 0;                   // the peer, by its place on the axis
  const std::byte* give = nullptr;  // what it reads of this rank
  uint64_t give_bytes = 0;
  // Where in this rank's memory lies what corresponds to what it reads of the peer: the gradients
  // of all peers are laid out alike.
  const std::byte* alike = nullptr;
  uint64_t take_bytes = 0;
  std::byte* to = nullptr;  // where the bytes are received; null: the exchange chooses
};

struct ExchangeStep {
  Step step = Step::shards;
  Channel* axis = nullptr;
  bool same = false;  // every peer reads the same of this rank
  // Flat by flat; of each the members of the axis, without this rank, in their order.
  std::vector<ExchangePiece> pieces;
  std::vector<size_t> first;  // by flat: which of them is its first

  const ExchangePiece& of(size_t flat, int member) const {
    const bool behind = member > axis->index();
    return pieces[first[flat] + static_cast<size_t>(member) - (behind ? 1 : 0)];
  }
};

class GradientExchange {
 public:
  virtual ~GradientExchange() = default;

  // What is given is complete. Steps follow each other.
  virtual Status begin(ExchangeStep step) = 0;
  // Whether what was begun can be read, by Place: looks, and never waits.
  virtual Result<bool> done() = 0;
  // What a member, not this rank, has given of a flat: of the last step, once it is done.
  virtual const std::byte* at(size_t flat, int member) const = 0;
  // This rank reads nothing of its peers any more; and whether they do of this rank.
  virtual void consumed() = 0;
  virtual Result<bool> parted() = 0;
  // Tells the peers that this rank cannot go on.
  virtual Error fail(const Error& error) = 0;
  // Members of the reduction's channel that it waits for.
  virtual std::vector<int> missing() const = 0;
};

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
// This rank reads local peers in place, once words of their UnitSlot say that they are ready.
// Remote peers send their bytes, which are staged here.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "gradient/exchange.h"
#include "gradient/on_host.h"

namespace meron {

class HostExchange final : public GradientExchange {
 public:
  // For the unit's current reduction, whose call was posted to `channel`. `between`: replicas take
  // part.
  HostExchange(Gradient& gradient, Channel& channel, uint64_t sequence, bool between);

  Status begin(ExchangeStep step) override;
  Result<bool> done() override;
  const std::byte* at(size_t flat, int member) const override;
  void consumed() override;
  Result<bool> parted() override;
  Error fail(const Error& error) override { return channel_.fail(error); }
  std::vector<int> missing() const override;

 private:
  void send();
  Status receive();
  // Sizes of an element in a peer's bucket and in this rank's.
  std::pair<uint64_t, uint64_t> sizes(const ExchangePiece& piece) const;
  int in_group(int member) const;
  Result<std::shared_ptr<Staging>> take_room(std::span<ExchangePiece> pieces);
  // Members of the group whose memory this rank reads in the step.
  const std::vector<int>& peers() const;
  std::atomic<uint64_t> UnitSlot::*word() const;
  const std::byte* in_place(const ExchangePiece& piece) const;

  Gradient& gradient_;
  GradientOnHost& memory_;
  Channel& channel_;
  const uint64_t sequence_;
  const uint64_t reduction_;
  const bool between_;
  ExchangeStep step_;
  bool begun_ = false, sent_ = false, receives_ = false, consumed_ = false;
  std::shared_ptr<Batch> batch_;
  std::vector<std::shared_ptr<Staging>> received_;  // from members on other nodes
};

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
#include "gradient/host_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace meron {
namespace {

constexpr uint64_t aligned(uint64_t bytes) {
  return round_up(bytes, 64);
}

}  // namespace

HostExchange::HostExchange(Gradient& gradient, Channel& channel, uint64_t sequence, bool between)
    : gradient_(gradient),
      memory_(*gradient.on_host()),
      channel_(channel),
      sequence_(sequence),
      reduction_(gradient.reductions),
      between_(between) {}

std::atomic<uint64_t> UnitSlot::*HostExchange::word() const {
  if (consumed_) return &UnitSlot::consumed;
  switch (step_.step) {
    case Step::shards:
      return &UnitSlot::contributed;
    case Step::replicas:
      return &UnitSlot::shard_ready;
    case Step::sums:
      break;
  }
  return &UnitSlot::summed;
}

const std::vector<int>& HostExchange::peers() const {
  const Unit& unit = gradient_.unit();
  const bool replicas = step_.step == Step::replicas || (step_.step == Step::sums && between_);
  return replicas || (consumed_ && between_) ? unit.local_replicas() : unit.local_shards();
}

Status HostExchange::begin(ExchangeStep step) {
  step_ = std::move(step);
  begun_ = true;
  sent_ = false;
  batch_ = nullptr;
  received_.clear();
  (gradient_.unit().own_slot().*word()).store(reduction_, std::memory_order_seq_cst);
  channel_.transport().ring();
  return Ok{};
}

Status HostExchange::send() {
  Channel& axis = *step_.axis;
  Link& link = *axis.link();
  const uint64_t tag = channel_.tag(sequence_, static_cast<uint32_t>(step_.step));
  batch_ = std::make_shared<Batch>(channel_.transport().world_size());
  const auto others = static_cast<size_t>(axis.size() - 1);
  for (size_t first = 0; first < step_.pieces.size(); first += others) {
    const std::span<ExchangePiece> pieces(&step_.pieces[first], others);
    MERON_ASSIGN(const std::shared_ptr<Staging> received, take_room(pieces));
    for (ExchangePiece& piece : pieces) {
      if (axis.is_local(piece.member)) continue;
      const int peer = axis.members().world_rank(piece.member);
      link.receive(batch_, peer, tag, piece.to, piece.take_bytes, received);
      link.send(batch_, peer, tag, piece.give, piece.give_bytes);
    }
  }
  return Ok{};
}

// For what arrives of a flat and has no place yet.
Result<std::shared_ptr<Staging>> HostExchange::take_room(std::span<ExchangePiece> pieces) {
  const Channel& axis = *step_.axis;
  const auto placeless = [&](const ExchangePiece& piece) {
    return piece.to == nullptr && !axis.is_local(piece.member);
  };
  uint64_t bytes = 0;
  for (const ExchangePiece& piece : pieces)
    bytes += placeless(piece) ? aligned(piece.take_bytes) : 0;
  if (bytes == 0) return std::shared_ptr<Staging>();
  MERON_ASSIGN(
      received_.emplace_back(),
      Staging::allocate(channel_.transport().shared_arena(), bytes,
                        fmt::format("the peers' gradients of unit '{}'", gradient_.unit().name())));
  std::byte* place = received_.back()->data();
  for (ExchangePiece& piece : pieces) {
    if (!placeless(piece)) continue;
    piece.to = place;
    place += aligned(piece.take_bytes);
  }
  return received_.back();
}

Result<bool> HostExchange::done() {
  if (channel_.link() != nullptr) {
    if (!std::exchange(sent_, true) && step_.axis->link() != nullptr) MERON_TRY(send());
    MERON_ASSIGN(const bool agreed, channel_.agreed(sequence_));
    if (!agreed || (batch_ && !batch_->done())) return false;
  }
  return gradient_.unit().reached(peers(), reduction_, word());
}

const std::byte* HostExchange::in_place(const ExchangePiece& piece) const {
  const Unit& unit = gradient_.unit();
  const GradientOnHost::Region region = memory_.region_of(piece.flat, piece.alike);
  const Axes& axes = unit.axes();
  const int member =
      step_.axis == axes.replica ? axes.of_replica(piece.member) : axes.of_shard(piece.member);
  const uint64_t begin =
      region.offset(unit.slot(member), reduction_, piece.flat).load(std::memory_order_relaxed);
  return unit.channel().memory(member, begin + static_cast<uint64_t>(piece.alike - region.begin));
}

const std::byte* HostExchange::at(size_t flat, int member) const {
  const ExchangePiece& piece = step_.of(flat, member);
  return step_.axis->is_local(member) ? in_place(piece) : piece.to;
}

void HostExchange::consumed() {
  consumed_ = true;
  gradient_.unit().own_slot().consumed.store(reduction_, std::memory_order_seq_cst);
  channel_.transport().ring();
}

// The trainer may change the sum once this has ended: no peer may still be reading it.
Result<bool> HostExchange::parted() {
  const bool read = between_ || step_.step == Step::sums;
  return !read || gradient_.unit().reached(peers(), reduction_, &UnitSlot::consumed);
}

std::vector<int> HostExchange::missing() const {
  if (!begun_) return {};
  const Unit& unit = gradient_.unit();
  std::vector<int> found = unit.places(channel_, unit.behind(peers(), reduction_, word()));
  if (!consumed_) {
    for (const int m : awaited(channel_, batch_.get())) found.push_back(m);
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

}  // namespace meron

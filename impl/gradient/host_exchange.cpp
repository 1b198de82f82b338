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
  sent_ = receives_ = false;
  batch_ = nullptr;
  received_.clear();
  (gradient_.unit().own_slot().*word()).store(reduction_, std::memory_order_seq_cst);
  channel_.transport().ring();
  return Ok{};
}

int HostExchange::in_group(int member) const {
  const Axes& axes = gradient_.unit().axes();
  return step_.axis == axes.replica ? axes.of_replica(member) : axes.of_shard(member);
}

std::pair<uint64_t, uint64_t> HostExchange::sizes(const ExchangePiece& piece) const {
  Unit& unit = gradient_.unit();
  const Flat& flat = unit.flats()[piece.flat];
  return {size_of(unit.gradient_type(flat, in_group(piece.member), reduction_)),
          size_of(gradient_.type_of(flat))};
}

// Begins to receive, flat by flat. Peers that have added several micro-batches may send wider
// elements. Their dtype is known once all peers have begun the call.
Status HostExchange::receive() {
  Channel& axis = *step_.axis;
  const uint64_t tag = channel_.tag(sequence_, static_cast<uint32_t>(step_.step));
  const auto others = static_cast<size_t>(axis.size() - 1);
  for (size_t first = 0; first < step_.pieces.size(); first += others) {
    const std::span<ExchangePiece> pieces(&step_.pieces[first], others);
    if (step_.step == Step::shards) {
      for (ExchangePiece& piece : pieces) {
        const auto [theirs, own] = sizes(piece);
        piece.take_bytes = piece.take_bytes / own * theirs;
      }
    }
    MERON_ASSIGN(const std::shared_ptr<Staging> received, take_room(pieces));
    for (ExchangePiece& piece : pieces) {
      if (axis.is_local(piece.member)) continue;
      axis.link()->receive(batch_, axis.members().world_rank(piece.member), tag, piece.to,
                           piece.take_bytes, received);
    }
  }
  return Ok{};
}

void HostExchange::send() {
  Channel& axis = *step_.axis;
  const uint64_t tag = channel_.tag(sequence_, static_cast<uint32_t>(step_.step));
  for (const ExchangePiece& piece : step_.pieces) {
    if (axis.is_local(piece.member)) continue;
    axis.link()->send(batch_, axis.members().world_rank(piece.member), tag, piece.give,
                      piece.give_bytes);
  }
}

// Allocates staging for the pieces of a flat that have no destination yet.
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
    const bool moves = step_.axis->link() != nullptr;
    const bool known = step_.step != Step::shards || !gradient_.unit().may_widen();
    if (moves && !std::exchange(sent_, true)) {
      batch_ = std::make_shared<Batch>(channel_.transport().world_size());
      if (known) MERON_TRY(receive());
      send();
      receives_ = known;
    }
    MERON_ASSIGN(const bool agreed, channel_.agreed(sequence_));
    if (!agreed) return false;
    if (moves && !std::exchange(receives_, true)) MERON_TRY(receive());
    if (batch_ && !batch_->done()) return false;
  }
  return gradient_.unit().reached(peers(), reduction_, word());
}

const std::byte* HostExchange::in_place(const ExchangePiece& piece) const {
  const Unit& unit = gradient_.unit();
  const GradientOnHost::Region region = memory_.region_of(step_.step, piece.flat, piece.alike);
  const int member = in_group(piece.member);
  const uint64_t begin =
      region.offset(unit.slot(member), reduction_, piece.flat).load(std::memory_order_relaxed);
  auto distance = static_cast<uint64_t>(piece.alike - region.begin);
  if (step_.step == Step::shards) {
    const auto [theirs, own] = sizes(piece);
    distance = distance / own * theirs;
  }
  return unit.channel().memory(member, begin + distance);
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

// The trainer may change the sum once the reduction has ended, so no peer may still read it.
Result<bool> HostExchange::parted() {
  const bool read = between_ || step_.step == Step::sums;
  return !read || gradient_.unit().reached(peers(), reduction_, &UnitSlot::consumed);
}

std::vector<int> HostExchange::missing() const {
  if (!begun_) return {};
  const Unit& unit = gradient_.unit();
  std::vector<int> found = unit.places(channel_, unit.behind(peers(), reduction_, word()));
  if (batch_ && !receives_) {
    for (const int m : channel_.not_begun(sequence_)) found.push_back(m);
  }
  if (!consumed_) {
    for (const int m : awaited(channel_, batch_.get())) found.push_back(m);
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
// The part of a reduction that is between replicas: each sums its part of all their rows. With a
// codec rows are encoded part by part, for the replica that sums it; what was lost stays here as
// feedback. (qgZ of ZeRO++, arXiv 2306.10209; LoCo, arXiv 2407.04480.)
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/hash.h"
#include "kernels/cpu/copy.h"
#include "kernels/cpu/reduce.h"
#include "param/reduce.h"
#include "plan/predict.h"

namespace meron {
namespace {

bool has_codec(const Unit& unit) {
  return unit.rank().plan.gradient.codec.kind != CodecKind::none;
}

// Bytes of a part of sums on the wire.
uint64_t sum_bytes(const Unit& unit, const Range& part) {
  return wire_bytes(unit.gradient_codec, part.size(), sizeof(float));
}

Range part_of_replica(const Unit& unit, const Flat& flat, int replica) {
  return part_range(flat.desc.elements, static_cast<uint64_t>(unit.axes().of_replica(replica)),
                    unit.axes().mesh);
}

float* at(const Flat& flat, uint64_t element) {
  return flat.sum + (element - flat.summed.begin);
}

}  // namespace

float* ReduceOperation::row_sum(const Flat& flat) const {
  return sums_apart(*unit_) ? reinterpret_cast<float*>(flat.exchange) : flat.sum;
}

// Of a replica's part in the encoded row, from the begin of Flat::exchange.
uint64_t ReduceOperation::encoded_part_offset(const Flat& flat, int replica) const {
  const uint64_t row = sums_apart(*unit_) ? round_up(flat.row.size() * sizeof(float), kPage) : 0;
  const uint64_t part = shard_elements(flat.row.size(), unit_->axes().mesh.replicas);
  return row + static_cast<uint64_t>(replica) *
                   room_bytes(unit_->rank().plan.gradient.codec, part, sizeof(float));
}

// Of this rank's part of the sum, encoded for the other replicas.
uint64_t ReduceOperation::encoded_sum_offset(const Flat& flat) const {
  const uint64_t row = sums_apart(*unit_) ? round_up(flat.row.size() * sizeof(float), kPage) : 0;
  const uint64_t encoded = encoded_row_room(unit_->rank().plan.gradient.codec, flat.row.size(),
                                            unit_->axes().mesh.replicas);
  return row + round_up(encoded, kPage);
}

const std::byte* ReduceOperation::exchange_of(int member, size_t flat) const {
  const uint64_t offset =
      unit_->slot(member).exchange_offset[reduction_ % 2][flat].load(std::memory_order_relaxed);
  return unit_->channel().memory(member, offset);
}

Status ReduceOperation::begin_exchange() {
  Unit& unit = *unit_;
  batch_ = nullptr;
  if (ends_ && !accumulate_) {
    for (const Flat& flat : unit.flats()) {
      if (!flat.desc.trainable) continue;
      const Recess recess(flat.row.size() * sizeof(float) >= kLongBytes);
      std::fill_n(row_sum(flat), flat.row.size(), 0.0f);
    }
  }
  if (has_codec(unit)) MERON_TRY(encode_rows());
  unit.own_slot().shard_ready.store(reduction_, std::memory_order_seq_cst);
  channel_.transport().ring();
  return send_rows();
}

Status ReduceOperation::encode_rows() {
  Unit& unit = *unit_;
  unit.review_gradient_codec();
  const Codec& codec = unit.gradient_codec;
  if (codec.feedback_reset > 0 && exchange_ % codec.feedback_reset == 0) {
    MERON_TRY(unit.drop_feedback());
  }
  const Wire wire(codec, unit.rank().threads);
  const auto replicas = static_cast<int>(unit.axes().mesh.replicas);
  kernels::QuantError error;
  for (size_t f = 0; f < unit.flats().size(); ++f) {
    const Flat& flat = unit.flats()[f];
    if (!flat.desc.trainable) continue;
    for (int i = 0; i < replicas; ++i) {
      const Range part = part_of_replica(unit, flat, i);
      if (part.size() == 0) continue;
      const uint64_t at_row = part.begin - flat.row.begin;
      Feedback feedback;
      if (flat.residual != nullptr && codec.feedback) {
        feedback = {flat.residual + at_row, static_cast<float>(codec.feedback_beta)};
      }
      wire.encode(flat.exchange + encoded_part_offset(flat, i), row_sum(flat) + at_row, DType::f32,
                  part.size(), rounding_seed(unit, exchange_, f, i), feedback,
                  codec.blocked() ? &error : nullptr);
    }
  }
  if (!codec.blocked()) return Ok{};
  unit.gradient_error = error.relative();
  unit.gradient_worst = error.worst_block;
  channel_.announce(unit.own_slot().gradient_error[exchange_ % 2],
                    std::bit_cast<uint32_t>(static_cast<float>(unit.gradient_error)));
  return Ok{};
}

uint64_t rounding_seed(const Unit& unit, uint64_t exchange, size_t flat, int part) {
  uint64_t seed = hash_combine(unit.name_hash(), exchange);
  for (const uint64_t value :
       {static_cast<uint64_t>(unit.axes().index()), uint64_t{flat}, static_cast<uint64_t>(part)}) {
    seed = hash_combine(seed, value);
  }
  return seed;
}

Status ReduceOperation::send_rows() {
  Unit& unit = *unit_;
  Channel& axis = *unit.axes().replica;
  if (axis.link() == nullptr) return Ok{};
  Link& link = *axis.link();
  const uint64_t tag = channel_.tag(sequence(), 1);
  const bool coded = has_codec(unit);
  batch_ = std::make_shared<Batch>(channel_.transport().world_size());
  received_.resize(unit.flats().size());
  for (size_t f = 0; f < unit.flats().size(); ++f) {
    const Flat& flat = unit.flats()[f];
    if (!flat.desc.trainable) continue;
    const uint64_t own_bytes = sum_bytes(unit, flat.part);
    MERON_ASSIGN(received_[f], Staging::allocate(channel_.transport().shared_arena(),
                                                 own_bytes * static_cast<uint64_t>(axis.size()),
                                                 fmt::format("the replicas' gradients of unit '{}'",
                                                             unit.name())));
    for (int m = 0; m < axis.size(); ++m) {
      if (axis.is_local(m)) continue;
      const int peer = axis.members().world_rank(m);
      const Range part = part_of_replica(unit, flat, m);
      const std::byte* from =
          coded ? flat.exchange + encoded_part_offset(flat, m)
                : reinterpret_cast<std::byte*>(row_sum(flat) + (part.begin - flat.row.begin));
      link.receive(batch_, peer, tag, received_[f]->data() + static_cast<uint64_t>(m) * own_bytes,
                   own_bytes, received_[f]);
      link.send(batch_, peer, tag, from, sum_bytes(unit, part));
      add(unit.rank().counters.far_reduced, own_bytes);
    }
  }
  return Ok{};
}

Result<bool> ReduceOperation::exchanged() {
  if (channel_.link() != nullptr) {
    MERON_ASSIGN(const bool agreed, channel_.agreed(sequence()));
    if (!agreed || (batch_ && !batch_->done())) return false;
  }
  return unit_->reached(unit_->local_replicas(), reduction_, &UnitSlot::shard_ready);
}

void ReduceOperation::sum_parts() {
  Unit& unit = *unit_;
  Rank& rank = unit.rank();
  const Axes& axes = unit.axes();
  const Channel& axis = *axes.replica;
  const bool coded = has_codec(unit);
  const size_t replicas = static_cast<size_t>(axis.size());
  const float scale = options_.boundary ? options_.scale(unit.channel().size()) : 1.0f;
  const bool accumulate = accumulate_ && sums_apart(unit);
  // What travels on encoded is squared as it is decoded.
  const bool squares_wanted = options_.boundary && unit.has_optimizer;
  const bool squares_now = squares_wanted && !(coded && shares());
  const bool read_next = shares() && unit.local_replicas().size() > 1;
  if (squares_wanted) unit.squares = {};
  unit.squares_known = squares_wanted;
  const Wire wire(unit.gradient_codec, rank.threads);

  for (size_t f = 0; f < unit.flats().size(); ++f) {
    const Flat& flat = unit.flats()[f];
    if (!flat.desc.trainable || flat.part.size() == 0) continue;
    const Range& part = flat.part;
    float* const sum = at(flat, part.begin);
    std::vector<const std::byte*> inputs(replicas);
    for (size_t i = 0; i < replicas; ++i) {
      const int member = static_cast<int>(i);
      const int place = axes.of_replica(member);
      if (!axis.is_local(member)) {
        inputs[i] = received_[f]->data() + i * sum_bytes(unit, part);
      } else if (coded) {
        // Its row is as long as this rank's, and so is its way to this part.
        inputs[i] = exchange_of(place, f) + encoded_part_offset(flat, axes.own_replica());
      } else if (member == axes.own_replica()) {
        inputs[i] = reinterpret_cast<std::byte*>(row_sum(flat) + (part.begin - flat.row.begin));
      } else {
        const uint64_t bytes = (part.begin - flat.row.begin) * sizeof(float);
        const uint64_t offset = unit.slot(place).sum_offset[f].load(std::memory_order_relaxed);
        inputs[i] =
            (sums_apart(unit) ? exchange_of(place, f) : unit.channel().memory(place, offset)) +
            bytes;
      }
    }
    add(rank.counters.reduced, (replicas - 1) * sum_bytes(unit, part));
    if (coded) {
      kernels::ExactSum squares;
      wire.sum(sum, accumulate, inputs.data(), replicas, scale, part.size(),
               squares_now ? &squares : nullptr);
      if (squares_now) unit.squares.merge(squares);
      continue;
    }
    std::vector<kernels::ExactSum> squares(squares_now ? static_cast<size_t>(rank.threads.threads())
                                                       : 0);
    {
      const Recess recess(part.size() >= kInlineElements);
      rank.threads.for_range(
          0, part.size(), kBlock, kInlineElements, [&](int thread, uint64_t begin, uint64_t end) {
            std::vector<const void*> from(replicas);
            for (size_t i = 0; i < replicas; ++i) {
              from[i] = inputs[i] + begin * sizeof(float);
            }
            kernels::reduce(sum + begin, accumulate, from.data(), replicas, kernels::Type::f32,
                            scale, end - begin,
                            squares_now ? &squares[static_cast<size_t>(thread)] : nullptr,
                            read_next);
          });
    }
    for (const auto& each : squares) unit.squares.merge(each);
  }
}

Status ReduceOperation::begin_sharing() {
  Unit& unit = *unit_;
  if (has_codec(unit)) {
    for (size_t f = 0; f < unit.flats().size(); ++f) {
      if (unit.flats()[f].desc.trainable) encode_sum(f);
    }
  }
  batch_ = nullptr;
  unit.own_slot().summed.store(reduction_, std::memory_order_seq_cst);
  channel_.transport().ring();
  return send_parts();
}

// All replicas get what comes of decoding, this one too.
void ReduceOperation::encode_sum(size_t index) {
  Unit& unit = *unit_;
  const Flat& flat = unit.flats()[index];
  if (flat.part.size() == 0) return;
  const Wire wire(unit.gradient_codec, unit.rank().threads);
  float* const sum = at(flat, flat.part.begin);
  std::byte* const encoded = flat.exchange + encoded_sum_offset(flat);
  wire.encode(encoded, sum, DType::f32, flat.part.size(), rounding_seed(unit, exchange_, index, -1),
              {}, nullptr);
  wire.decode(sum, DType::f32, encoded, flat.part.size(), false);
  if (!unit.squares_known) return;
  kernels::ExactSum squares;
  {
    const Recess recess(flat.part.size() >= kInlineElements);
    kernels::reduce(sum, true, nullptr, 0, kernels::Type::f32, 1.0f, flat.part.size(), &squares);
  }
  unit.squares.merge(squares);
}

Status ReduceOperation::send_parts() {
  Unit& unit = *unit_;
  Channel& axis = *unit.axes().replica;
  if (axis.link() == nullptr) return Ok{};
  Link& link = *axis.link();
  const uint64_t tag = channel_.tag(sequence(), 2);
  const bool coded = has_codec(unit);
  batch_ = std::make_shared<Batch>(channel_.transport().world_size());
  received_.resize(unit.flats().size());
  for (size_t f = 0; f < unit.flats().size(); ++f) {
    const Flat& flat = unit.flats()[f];
    if (!flat.desc.trainable) continue;
    // The first part is the longest.
    const uint64_t room = sum_bytes(unit, part_of_replica(unit, flat, 0));
    if (coded) {
      MERON_ASSIGN(received_[f],
                   Staging::allocate(channel_.transport().shared_arena(),
                                     room * static_cast<uint64_t>(axis.size()),
                                     fmt::format("the replicas' sums of unit '{}'", unit.name())));
    }
    for (int m = 0; m < axis.size(); ++m) {
      if (axis.is_local(m)) continue;
      const int peer = axis.members().world_rank(m);
      const Range part = part_of_replica(unit, flat, m);
      std::byte* const to = coded ? received_[f]->data() + static_cast<uint64_t>(m) * room
                                  : reinterpret_cast<std::byte*>(at(flat, part.begin));
      const std::byte* const from = coded ? flat.exchange + encoded_sum_offset(flat)
                                          : reinterpret_cast<std::byte*>(at(flat, flat.part.begin));
      link.receive(batch_, peer, tag, to, sum_bytes(unit, part), received_[f]);
      link.send(batch_, peer, tag, from, sum_bytes(unit, flat.part));
      add(unit.rank().counters.far_reduced, sum_bytes(unit, part));
    }
  }
  return Ok{};
}

void ReduceOperation::fetch_parts() {
  Unit& unit = *unit_;
  Rank& rank = unit.rank();
  const Axes& axes = unit.axes();
  const Channel& axis = *axes.replica;
  const bool coded = has_codec(unit);
  const Wire wire(unit.gradient_codec, rank.threads);
  for (size_t f = 0; f < unit.flats().size(); ++f) {
    const Flat& flat = unit.flats()[f];
    if (!flat.desc.trainable) continue;
    const uint64_t room = sum_bytes(unit, part_of_replica(unit, flat, 0));
    for (int i = 0; i < axis.size(); ++i) {
      const Range part = part_of_replica(unit, flat, i);
      if (i == axes.own_replica() || part.size() == 0) continue;
      add(rank.counters.reduced, sum_bytes(unit, part));
      const int place = axes.of_replica(i);
      float* const to = at(flat, part.begin);
      if (coded) {
        const std::byte* const from = axis.is_local(i)
                                          ? exchange_of(place, f) + encoded_sum_offset(flat)
                                          : received_[f]->data() + static_cast<uint64_t>(i) * room;
        wire.decode(to, DType::f32, from, part.size(), false);
        continue;
      }
      if (!axis.is_local(i)) continue;  // received where it belongs
      const uint64_t offset = unit.slot(place).sum_offset[f].load(std::memory_order_relaxed);
      const std::byte* from =
          unit.channel().memory(place, offset + (part.begin - flat.summed.begin) * sizeof(float));
      const Recess recess(part.size() >= kInlineElements);
      rank.threads.for_range(0, part.size(), kBlock, kInlineElements,
                             [&](int, uint64_t begin, uint64_t end) {
                               kernels::hand_over(to + begin, from + begin * sizeof(float),
                                                  (end - begin) * sizeof(float));
                             });
    }
  }
}

}  // namespace meron

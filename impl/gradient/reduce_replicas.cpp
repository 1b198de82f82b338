// SPDX-License-Identifier: Apache-2.0
// The exchange between replicas in a reduction. Each replica sums its part of all rows. With a
// codec, each part of a row is encoded for the replica that sums it.
#include <bit>
#include <cmath>

#include "base/hash.h"
#include "gradient/reduce.h"

namespace meron {
namespace {

// Seed of stochastic rounding. It differs by rank, exchange, flat and part; -1 stands for the sum.
uint64_t rounding_seed(const Unit& unit, uint64_t exchange, size_t flat, int part) {
  uint64_t seed = hash_combine(unit.name_hash(), exchange);
  for (const uint64_t value :
       {static_cast<uint64_t>(unit.axes().index()), uint64_t{flat}, static_cast<uint64_t>(part)}) {
    seed = hash_combine(seed, value);
  }
  return seed;
}

}  // namespace

bool ReduceOperation::coded() const {
  return unit_->rank().plan.gradient.codec.kind != CodecKind::none;
}

Range ReduceOperation::part_of_replica(const Flat& flat, int replica) const {
  return part_range(flat.desc.elements, static_cast<uint64_t>(unit_->axes().of_replica(replica)),
                    unit_->axes().mesh);
}

// The dtype of the rows that replicas exchange without a codec.
DType ReduceOperation::row_type(size_t flat) const {
  return pass_.direct ? gradient_.type_of(unit_->flats()[flat]) : DType::f32;
}

std::byte* ReduceOperation::row_from(size_t flat, uint64_t element) const {
  std::byte* const row =
      pass_.direct ? memory_.bucket(flat) : reinterpret_cast<std::byte*>(memory_.row(flat));
  return row + (element - unit_->flats()[flat].row.begin) * size_of(row_type(flat));
}

// Bytes of a part as replicas exchange it.
uint64_t ReduceOperation::bytes_of_part(size_t flat, const Range& part) const {
  return coded() ? wire_bytes(gradient_.codec, part.size(), sizeof(float))
                 : part.size() * size_of(row_type(flat));
}

Status ReduceOperation::begin_replicas() {
  if (pass_.ends && !pass_.accumulate) {
    for (size_t f = 0; f < unit_->flats().size(); ++f) {
      const Flat& flat = unit_->flats()[f];
      if (!flat.desc.trainable || flat.row.size() == 0) continue;
      MERON_TRY(memory_.place().zero(memory_.row(f), flat.row.size() * sizeof(float)));
    }
  }
  if (coded()) MERON_TRY(encode_rows());
  const int own = unit_->axes().own_replica();
  return exchange_->begin(
      step_along(Step::replicas, *unit_->axes().replica, [&](ExchangePiece& piece) {
        const Flat& flat = unit_->flats()[piece.flat];
        const Range part = part_of_replica(flat, piece.member);
        if (coded()) {
          piece.give = memory_.encoded(piece.flat, piece.member);
          // Replicas have rows of the same length, so the part has the same offset in each.
          piece.alike = memory_.encoded(piece.flat, own);
        } else {
          piece.give = row_from(piece.flat, part.begin);
          piece.alike = row_from(piece.flat, flat.part.begin);
        }
        piece.give_bytes = bytes_of_part(piece.flat, part);
        piece.take_bytes = bytes_of_part(piece.flat, flat.part);
        piece.to = memory_.room(pass_, Step::replicas, piece.flat, piece.member);
      }));
}

Status ReduceOperation::encode_rows() {
  MERON_TRY(gradient_.review_codec());
  MERON_TRY(gradient_.begin_exchange(pass_.options.scale(unit_->channel().size())));
  const Codec& codec = gradient_.codec;
  if (codec.feedback_reset > 0 && number_ % codec.feedback_reset == 0) {
    MERON_TRY(gradient_.drop_feedback());
  }
  std::vector<meron_encode_task> tasks;
  for (size_t f = 0; f < unit_->flats().size(); ++f) {
    const Flat& flat = unit_->flats()[f];
    if (!flat.desc.trainable) continue;
    for (int i = 0; i < unit_->axes().replica->size(); ++i) {
      const Range part = part_of_replica(flat, i);
      if (part.size() == 0) continue;
      const uint64_t at_row = part.begin - flat.row.begin;
      float* const residual = memory_.residual(f);
      tasks.push_back({memory_.encoded(f, i), memory_.row(f) + at_row,
                       residual != nullptr ? residual + at_row : nullptr, part.size(),
                       rounding_seed(*unit_, number_, f, i)});
    }
  }
  kernels::QuantError error;
  MERON_TRY(memory_.place().encode(codec, tasks, &error));
  if (!codec.blocked() || memory_.on_device()) return Ok{};
  if (std::isinf(error.error_squares) && !gradient_.nonfinite) {
    gradient_.nonfinite = first_nonfinite_of_rows();
  }
  gradient_.error.relative = error.relative();
  gradient_.error.worst = error.worst_block;
  channel_.announce(unit_->own_slot().gradient_error[number_ % 2],
                    std::bit_cast<uint32_t>(static_cast<float>(gradient_.error.relative)));
  return Ok{};
}

// Reads all rows again, so it is called only if encoding has found a non-finite one.
std::optional<FlatElement> ReduceOperation::first_nonfinite_of_rows() const {
  const Recess recess;  // nothing else changes rows meanwhile
  for (size_t f = 0; f < unit_->flats().size(); ++f) {
    const Flat& flat = unit_->flats()[f];
    if (!flat.desc.trainable) continue;
    const float* const row = memory_.row(f);
    for (uint64_t i = 0; i < flat.row.size(); ++i) {
      if (!std::isfinite(row[i])) return FlatElement{f, flat.row.begin + i};
    }
  }
  return {};
}

Status ReduceOperation::sum_replicas() {
  const Axes& axes = unit_->axes();
  for (size_t f = 0; f < unit_->flats().size(); ++f) {
    const Flat& flat = unit_->flats()[f];
    if (!flat.desc.trainable || flat.part.size() == 0) continue;
    Sum sum;
    sum.out = sum_from(f, flat.part.begin);
    sum.accumulate = pass_.accumulate && sums_apart(*unit_);
    sum.in =
        inputs(*axes.replica, f,
               coded() ? memory_.encoded(f, axes.own_replica()) : row_from(f, flat.part.begin));
    sum.type = row_type(f);
    if (pass_.options.boundary) sum.scale = pass_.options.scale(unit_->channel().size());
    sum.count = flat.part.size();
    // encode_sums() counts the squares of sums that it encodes.
    sum.squares = coded() && pass_.shares ? nullptr : memory_.squares();
    sum.read_next = pass_.shares && unit_->local_replicas().size() > 1;
    MERON_TRY(coded() ? memory_.place().sum_encoded(gradient_.codec, sum)
                      : memory_.place().sum(sum));
  }
  return Ok{};
}

// All replicas use the decoded sums, this one too. The error of a sum is added to the feedback of
// this rank's own row, in the scale of the sum. The next exchange adds both.
Status ReduceOperation::encode_sums() {
  Place& place = memory_.place();
  const float scale = pass_.options.scale(unit_->channel().size());
  const bool keeps = gradient_.codec.feedback && std::isnormal(scale);
  for (size_t f = 0; f < unit_->flats().size(); ++f) {
    const Flat& flat = unit_->flats()[f];
    if (!flat.desc.trainable || flat.part.size() == 0) continue;
    float* const sum = sum_from(f, flat.part.begin);
    std::byte* const encoded = memory_.encoded_sum(f);
    float* const residual =
        keeps ? memory_.residual(f) + (flat.part.begin - flat.row.begin) : nullptr;
    const auto scale_residual = [&](float by) -> Status {
      if (residual == nullptr || by == 1.0f) return Ok{};
      Sum scaled;
      scaled.out = residual;
      scaled.accumulate = true;
      scaled.scale = by;
      scaled.count = flat.part.size();
      return place.sum(scaled);
    };
    const meron_encode_task task{encoded, sum, residual, flat.part.size(),
                                 rounding_seed(*unit_, number_, f, -1)};
    MERON_TRY(scale_residual(scale));
    MERON_TRY(place.encode(gradient_.codec, {&task, 1}, nullptr));
    MERON_TRY(scale_residual(1.0f / scale));
    const meron_cast_task back{sum, encoded, flat.part.size()};
    MERON_TRY(place.decode(gradient_.codec, {&back, 1}));
    if (memory_.squares() == nullptr) continue;
    Sum squared;
    squared.out = sum;
    squared.accumulate = true;
    squared.count = flat.part.size();
    squared.squares = memory_.squares();
    MERON_TRY(place.sum(squared));
  }
  return Ok{};
}

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
#include "gradient/reduce.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "gradient/device_exchange.h"
#include "gradient/host_exchange.h"

namespace meron {

Pass Pass::of(const Unit& unit, const ReduceOptions& options, bool ends) {
  const Plan& plan = unit.rank().plan;
  const MeshShape& mesh = unit.axes().mesh;
  Pass pass;
  pass.options = options;
  pass.ends = ends;
  pass.accumulate = unit.gradient().started;
  pass.between = between_replicas(unit, options);
  pass.direct = pass.between && !ends && sends_gradients(plan, mesh, !pass.accumulate);
  pass.shares = pass.between
                    ? !over_all(plan.optimizer, mesh)
                    : !unit.axes().replicas() && !is_sharded(plan.optimizer) && mesh.shards > 1;
  return pass;
}

ReduceOperation::ReduceOperation(Begun /*by*/, std::shared_ptr<Unit> unit, const Pass& pass,
                                 uint64_t sequence, Deadline deadline)
    : Operation(channel_for(*unit, pass.options), deadline),
      unit_(std::move(unit)),
      gradient_(unit_->gradient()),
      memory_(gradient_.memory()),
      pass_(pass) {
  set_sequence(sequence);
}

Channel& ReduceOperation::channel_for(const Unit& unit, const ReduceOptions& options) {
  // Devices of both axes take turns in the order of one channel's calls.
  const bool all = unit.gradient().memory().on_device() || between_replicas(unit, options);
  return all ? *unit.axes().group : *unit.axes().shard;
}

Result<std::shared_ptr<ReduceOperation>> ReduceOperation::begin(std::shared_ptr<Unit> unit,
                                                                const Pass& pass, uint64_t sequence,
                                                                Deadline deadline) {
  auto reduce =
      std::make_shared<ReduceOperation>(Begun{}, std::move(unit), pass, sequence, deadline);
  Gradient& gradient = reduce->gradient_;
  MERON_TRY(gradient.enter(GradientState::reducing));
  reduce->reduction_ = ++gradient.reductions;
  if (pass.between) reduce->number_ = ++gradient.exchanges;
  gradient.reduction = reduce;
  gradient.at_boundary = pass.options.boundary;
  gradient.between = pass.between;
  if (GradientOnHost* const host = gradient.on_host()) {
    host->note_reduction();
    reduce->exchange_ =
        std::make_unique<HostExchange>(gradient, reduce->channel(), sequence, pass.between);
  } else {
    reduce->exchange_ =
        std::make_unique<DeviceExchange>(gradient, static_cast<GradientOnDevice&>(reduce->memory_),
                                         DeviceGroup::Call{sequence, deadline, reduce->describe()});
  }
  return reduce;
}

// ---- The order of things -----------------------------------------------------------------------

Result<bool> ReduceOperation::advance() {
  // A save is copying the feedback, so it must not change now.
  if (stage_ < Stage::settling && unit_->held_for_save() && gradient_.keeps_feedback()) {
    return false;
  }
  // If this rank fails, it reports the failure so that peers stop waiting.
  Result<bool> moved = move();
  if (!moved.ok()) return exchange_->fail(std::move(moved).error().on(unit_->name()));
  return moved;
}

Result<bool> ReduceOperation::move() {
  if (stage_ == Stage::adding) {
    if (!std::exchange(completed_, true) && !pass_.ends) MERON_TRY(memory_.complete());
    MERON_ASSIGN(const bool added, memory_.added());
    if (!added) return false;
    MERON_TRY(begin_work());
  }
  if (stage_ == Stage::shards) {
    MERON_ASSIGN(const bool done, exchange_->done());
    if (!done) return false;
    if (!pass_.ends) MERON_TRY(sum_shards());
    MERON_TRY(after_shards());
  }
  if (stage_ == Stage::replicas) {
    MERON_ASSIGN(const bool done, exchange_->done());
    if (!done) return false;
    MERON_TRY(sum_replicas());
    MERON_TRY(after_replicas());
  }
  if (stage_ == Stage::sums) {
    MERON_ASSIGN(const bool done, exchange_->done());
    if (!done) return false;
    MERON_TRY(take_sums());
    MERON_TRY(end_work());
  }
  if (stage_ == Stage::settling) {
    MERON_ASSIGN(const bool settled, memory_.settled());
    if (!settled) return false;
    stage_ = Stage::parting;
  }
  MERON_ASSIGN(const bool parted, exchange_->parted());
  return parted ? end() : Result<bool>(false);
}

Status ReduceOperation::begin_work() {
  MERON_TRY(memory_.begin_squares(pass_.options.boundary && unit_->has_optimizer));
  // An end has nothing to sum. It takes the step only to have the errors of all shards.
  if ((pass_.ends && !gradient_.reviews_codec()) || pass_.direct) return after_shards();
  stage_ = Stage::shards;
  return begin_shards();
}

Status ReduceOperation::after_shards() {
  if (pass_.between) {
    stage_ = Stage::replicas;
    return begin_replicas();
  }
  if (!pass_.shares) return end_work();
  stage_ = Stage::sums;
  return begin_sums();
}

Status ReduceOperation::after_replicas() {
  // The sums that follow do not use the bucket, so the next unit may take it now.
  if (rows_leave_bucket(*unit_)) memory_.release_bucket();
  if (!pass_.shares) return end_work();
  stage_ = Stage::sums;
  return begin_sums();
}

Status ReduceOperation::end_work() {
  stage_ = Stage::settling;
  exchange_->consumed();
  MERON_TRY(memory_.end_work());
  memory_.release_bucket();
  return Ok{};
}

Result<bool> ReduceOperation::end() {
  gradient_.started = !pass_.options.boundary;
  MERON_TRY(
      gradient_.enter(pass_.options.boundary ? GradientState::ready : GradientState::partial));
  return true;
}

// ---- Along the shard axis ----------------------------------------------------------------------

Status ReduceOperation::begin_shards() {
  const Axes& axes = unit_->axes();
  if (pass_.ends) {  // nothing was added: the step waits until all shards have begun the exchange
    ExchangeStep step;
    step.axis = axes.shard;
    return exchange_->begin(std::move(step));
  }
  return exchange_->begin(step_along(Step::shards, *axes.shard, [&](ExchangePiece& piece) {
    const Flat& flat = unit_->flats()[piece.flat];
    const uint64_t size = size_of(gradient_.type_of(flat));
    const Range row = row_range(flat.desc.elements, static_cast<uint64_t>(piece.member), axes.mesh);
    std::byte* const bucket = memory_.bucket(piece.flat);
    piece.give = bucket + row.begin * size;
    piece.give_bytes = row.size() * size;
    piece.alike = bucket + flat.row.begin * size;
    piece.take_bytes = flat.row.size() * size;
    piece.to = memory_.room(pass_, Step::shards, piece.flat, piece.member);
  }));
}

Status ReduceOperation::sum_shards() {
  const Axes& axes = unit_->axes();
  const bool last = !axes.replicas();
  const bool read_next = last ? pass_.shares && unit_->local_shards().size() > 1
                              : pass_.between && unit_->local_replicas().size() > 1;
  for (size_t f = 0; f < unit_->flats().size(); ++f) {
    const Flat& flat = unit_->flats()[f];
    if (!flat.desc.trainable || flat.row.size() == 0) continue;
    Sum sum;
    sum.out = memory_.row(f);
    sum.accumulate = pass_.accumulate && !sums_apart(*unit_);
    // An f32 bucket that is also the sum must be named by one address for the kernel.
    const uint64_t size = size_of(gradient_.type_of(flat));
    sum.in = inputs(*axes.shard, f, memory_.bucket(f) + flat.row.begin * size);
    std::vector<std::shared_ptr<Staging>> copies;
    MERON_ASSIGN(sum.type, make_alike(f, &sum.in, &copies));
    if (last && pass_.options.boundary) sum.scale = pass_.options.scale(unit_->channel().size());
    sum.count = flat.row.size();
    sum.squares = last ? memory_.squares() : nullptr;
    sum.read_next = read_next;
    sum.backwards = reduction_ % 2 != 0;
    MERON_TRY(memory_.place().sum(sum));
  }
  return Ok{};
}

DType ReduceOperation::bucket_type(const Flat& flat, int shard) const {
  const Axes& axes = unit_->axes();
  return shard == axes.own_shard() ? gradient_.type_of(flat)
                                   : unit_->gradient_type(flat, axes.of_shard(shard), reduction_);
}

// Returns the common dtype of a flat's rows from all buckets. Ranks may have added different
// numbers of micro-batches: if some rows are f32, the others are replaced by copies in f32.
Result<DType> ReduceOperation::make_alike(size_t index, std::vector<const void*>* buckets,
                                          std::vector<std::shared_ptr<Staging>>* copies) {
  const Flat& flat = unit_->flats()[index];
  const Channel& axis = *unit_->axes().shard;
  const DType own = gradient_.type_of(flat);
  bool alike = true;
  for (int member = 0; member < axis.size(); ++member) {
    const DType type = bucket_type(flat, member);
    if (member != axis.index()) count(axis, member, flat.row.size() * size_of(type));
    alike = alike && type == own;
  }
  if (alike) return own;
  for (size_t i = 0; i < buckets->size(); ++i) {
    const DType type = bucket_type(flat, static_cast<int>(i));
    if (type == DType::f32) continue;
    MERON_ASSIGN(
        copies->emplace_back(),
        Staging::allocate(unit_->rank().transport.shared_arena(), flat.row.size() * sizeof(float),
                          fmt::format("gradients of unit '{}' in f32", unit_->name())));
    Sum copy;
    copy.out = reinterpret_cast<float*>(copies->back()->data());
    copy.in = {(*buckets)[i]};
    copy.type = type;
    copy.count = flat.row.size();
    MERON_TRY(memory_.place().sum(copy));
    (*buckets)[i] = copy.out;
  }
  return DType::f32;
}

// ---- Between replicas: reduce_replicas.cpp. Sums that more ranks need: -------------------------

Status ReduceOperation::begin_sums() {
  if (pass_.between && coded()) MERON_TRY(encode_sums());
  const Axes& axes = unit_->axes();
  Channel& axis = pass_.between ? *axes.replica : *axes.shard;
  ExchangeStep step = step_along(Step::sums, axis, [&](ExchangePiece& piece) {
    const Flat& flat = unit_->flats()[piece.flat];
    const Range& own = pass_.between ? flat.part : flat.row;
    const Range other = pass_.between ? part_of_replica(flat, piece.member)
                                      : row_range(flat.desc.elements,
                                                  static_cast<uint64_t>(piece.member), axes.mesh);
    if (pass_.between && coded()) {
      piece.give = piece.alike = memory_.encoded_sum(piece.flat);
      piece.to = memory_.room(pass_, Step::sums, piece.flat, piece.member);
    } else {
      piece.give = reinterpret_cast<std::byte*>(sum_from(piece.flat, own.begin));
      piece.to = reinterpret_cast<std::byte*>(sum_from(piece.flat, other.begin));
      piece.alike = piece.to;
    }
    const bool encoded = pass_.between && coded();
    piece.give_bytes = encoded ? bytes_of_part(piece.flat, own) : own.size() * sizeof(float);
    piece.take_bytes = encoded ? bytes_of_part(piece.flat, other) : other.size() * sizeof(float);
  });
  step.same = true;
  return exchange_->begin(std::move(step));
}

Status ReduceOperation::take_sums() {
  const Axes& axes = unit_->axes();
  const Channel& axis = pass_.between ? *axes.replica : *axes.shard;
  std::vector<meron_cast_task> decodes;
  for (size_t f = 0; f < unit_->flats().size(); ++f) {
    const Flat& flat = unit_->flats()[f];
    if (!flat.desc.trainable) continue;
    for (int member = 0; member < axis.size(); ++member) {
      if (member == axis.index()) continue;
      const Range range =
          pass_.between ? part_of_replica(flat, member)
                        : row_range(flat.desc.elements, static_cast<uint64_t>(member), axes.mesh);
      if (range.size() == 0) continue;
      float* const to = sum_from(f, range.begin);
      const std::byte* const from = exchange_->at(f, member);
      if (pass_.between && coded()) {
        decodes.push_back({to, from, range.size()});
      } else if (from != reinterpret_cast<std::byte*>(to)) {
        MERON_TRY(memory_.place().copy(reinterpret_cast<std::byte*>(to), from,
                                       range.size() * sizeof(float)));
      }
    }
  }
  return decodes.empty() ? Status(Ok{}) : memory_.place().decode(gradient_.codec, decodes);
}

// ---- Details -----------------------------------------------------------------------------------

ExchangeStep ReduceOperation::step_along(Step step, Channel& axis,
                                         const std::function<void(ExchangePiece&)>& fill) {
  ExchangeStep made;
  made.step = step;
  made.axis = &axis;
  made.first.resize(unit_->flats().size());
  for (size_t f = 0; f < unit_->flats().size(); ++f) {
    made.first[f] = made.pieces.size();
    if (!unit_->flats()[f].desc.trainable) continue;
    for (int member = 0; member < axis.size(); ++member) {
      if (member == axis.index()) continue;
      ExchangePiece& piece = made.pieces.emplace_back();
      piece.flat = f;
      piece.member = member;
      fill(piece);
      if (step != Step::shards) count(axis, member, piece.take_bytes);
    }
  }
  return made;
}

void ReduceOperation::count(const Channel& axis, int member, uint64_t bytes) const {
  Counters& counters = unit_->rank().counters;
  add(counters.reduced, bytes);
  if (!axis.is_local(member)) add(counters.inter_node_reduce, bytes);
}

std::vector<const void*> ReduceOperation::inputs(const Channel& axis, size_t flat,
                                                 const void* own) const {
  std::vector<const void*> in(static_cast<size_t>(axis.size()));
  for (int member = 0; member < axis.size(); ++member) {
    in[static_cast<size_t>(member)] = member == axis.index() ? own : exchange_->at(flat, member);
  }
  return in;
}

float* ReduceOperation::sum_from(size_t flat, uint64_t element) const {
  return memory_.sum(flat) + (element - unit_->flats()[flat].summed.begin);
}

std::string ReduceOperation::describe() const {
  return fmt::format("reduce of unit '{}'{}", unit_->name(),
                     memory_.on_device() ? " on the device" : "");
}

}  // namespace meron

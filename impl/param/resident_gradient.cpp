// SPDX-License-Identifier: Apache-2.0
#include "param/resident_gradient.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <tuple>
#include <utility>

#include "param/device_group.h"
#include "param/gradient.h"
#include "plan/value_layout.h"

namespace meron {
namespace {

static_assert(MERON_SQUARES_BYTES == sizeof(kernels::ExactPieces));

// Whether tensors leave something of the flat out.
bool has_gaps(Unit& unit, size_t flat) {
  uint64_t covered = 0;
  for (const auto& param : unit.params()) {
    if (param->place.flat == flat) covered += param->count;
  }
  return covered != unit.flats()[flat].desc.elements;
}

}  // namespace

ResidentGradient::ResidentGradient(Unit& unit)
    : unit_(unit),
      sums_(unit.flats().size()),
      buckets_(unit.flats().size()),
      rows_(unit.flats().size()),
      row_sums_(unit.flats().size()),
      encoded_(unit.flats().size()),
      parts_(unit.flats().size()),
      residuals_(unit.flats().size()) {}

Result<std::unique_ptr<ResidentGradient>> ResidentGradient::create(Unit& unit) {
  std::unique_ptr<ResidentGradient> gradient(new ResidentGradient(unit));
  Rank& rank = unit.rank();
  DeviceSide& side = *rank.device;
  Device& device = side.device();
  const std::string what = fmt::format("the reduced gradient of unit '{}'", unit.name());
  for (size_t f = 0; f < unit.flats().size(); ++f) {
    const Flat& flat = unit.flats()[f];
    if (!flat.desc.trainable) continue;
    const uint64_t bytes =
        device_sum_bytes(rank.plan, flat.desc.elements, static_cast<uint64_t>(unit.axes().index()),
                         unit.axes().mesh);
    MERON_ASSIGN(gradient->sums_[f], device.allocate(bytes, side.work(), what));
    gradient->hold(bytes);
    MERON_TRY(device.fill(gradient->sums_[f].data(), 0, bytes, side.work()));
    const uint64_t lost = device_feedback_bytes(rank.plan, flat.row.size(), unit.axes().mesh);
    if (lost == 0) continue;
    MERON_ASSIGN(
        gradient->residuals_[f],
        device.allocate(lost, side.work(),
                        fmt::format("the feedback of the gradient of unit '{}'", unit.name())));
    gradient->hold(lost);
    MERON_TRY(device.fill(gradient->residuals_[f].data(), 0, lost, side.work()));
  }
  MERON_ASSIGN(gradient->squares_, device.allocate(MERON_SQUARES_BYTES, side.work(), what));
  MERON_ASSIGN(gradient->squares_here_,
               rank.arena().allocate(MERON_SQUARES_BYTES, MemoryKind::staging, what));
  rank.pin(gradient->squares_here_.data, gradient->squares_here_.bytes);
  return gradient;
}

ResidentGradient::~ResidentGradient() {
  Rank& rank = unit_.rank();
  // The copy of the squares may be under way.
  (void)side().device().synchronize(side().work());
  rank.counters.device_held.fetch_sub(held_);
  for (const Buffer& buffer : shown_) rank.arena().release(buffer);
  if (!squares_here_) return;
  side().unpin(squares_here_.data);
  rank.arena().release(squares_here_);
}

void ResidentGradient::hold(uint64_t bytes) {
  held_ += bytes;
  ::meron::add(unit_.rank().counters.device_held, bytes);
}

Status ResidentGradient::open_bucket(size_t flat) {
  if (buckets_[flat]) return Ok{};
  const Flat& target = unit_.flats()[flat];
  const uint64_t bytes = target.desc.elements * size_of(unit_.gradient_type(target));
  Device& device = side().device();
  MERON_ASSIGN(buckets_[flat],
               device.allocate(bytes, side().work(),
                               fmt::format("the gradient bucket of unit '{}'", unit_.name())));
  if (!has_gaps(unit_, flat)) return Ok{};
  return device.fill(buckets_[flat].data(), 0, bytes, side().work());
}

Status ResidentGradient::add(std::span<const GivenGradient> gradients, void* stream) {
  const std::vector<bool> fresh = unit_.fresh;
  Status packed = pack(gradients, stream);
  if (packed.ok()) return packed;
  unit_.fresh = fresh;  // what has come already counts for nothing
  // The caller's memory is read no more; a device that has failed is told of below.
  (void)side().device().synchronize(side().work());
  copies_.clear();
  Error error = std::move(packed).error();
  // With a device that has failed this rank gives no gradient any more: its peers are told.
  if (error.code() == MERON_E_DEVICE)
    return unit_.channel().fail(std::move(error).on(unit_.name()));
  return error;
}

Status ResidentGradient::pack(std::span<const GivenGradient> gradients, void* stream) {
  Device& device = side().device();
  MERON_ASSIGN(const DeviceEvent written, device.record(stream));
  MERON_TRY(device.wait(side().work(), written));
  // By what the bucket has, what is given, and whether it is added.
  std::map<std::tuple<DType, DType, bool>, std::vector<meron_cast_task>> tasks;
  for (const GivenGradient& gradient : gradients) {
    const Param& param = *unit_.params()[gradient.param];
    if (param.count == 0) continue;
    MERON_TRY(open_bucket(param.place.flat));
    const DType type = unit_.gradient_type(unit_.flats()[param.place.flat]);
    const std::byte* from = gradient.data;
    if (!gradient.on_device) {
      const uint64_t bytes = param.count * size_of(gradient.dtype);
      MERON_ASSIGN(DeviceMemory copy,
                   device.allocate(bytes, side().work(),
                                   fmt::format("the gradient of '{}'", param.desc.name)));
      MERON_TRY(device.copy(copy.data(), from, bytes, side().work()));
      ::meron::add(unit_.rank().counters.device_up, bytes);
      from = copy.data();
      copies_.push_back(std::move(copy));
    }
    const bool first = unit_.fresh[gradient.param];
    std::byte* const to = buckets_[param.place.flat].data() + param.place.offset * size_of(type);
    tasks[{type, gradient.dtype, !first}].push_back({to, from, param.count});
  }
  for (const auto& [kind, list] : tasks) {
    const auto& [to, from, more] = kind;
    MERON_TRY(device.cast(list, to, from, more, side().work()));
  }
  for (const GivenGradient& gradient : gradients) unit_.fresh[gradient.param] = false;
  // Pinned memory is copied from when the stream has come so far; the caller may change it at once.
  if (!copies_.empty()) MERON_TRY(device.synchronize(side().work()));
  return Ok{};
}

Status ResidentGradient::zero_missing() {
  for (size_t i = 0; i < unit_.params().size(); ++i) {
    const Param& param = *unit_.params()[i];
    if (!unit_.fresh[i] || !param.desc.trainable) continue;
    unit_.fresh[i] = false;
    const size_t flat = param.place.flat;
    MERON_TRY(open_bucket(flat));
    const uint64_t size = size_of(unit_.gradient_type(unit_.flats()[flat]));
    MERON_TRY(side().device().fill(buckets_[flat].data() + param.place.offset * size, 0,
                                   param.count * size, side().work()));
  }
  return Ok{};
}

Status ResidentGradient::begin_squares(const ReduceOptions& options) {
  squares_wanted_ = options.boundary && unit_.has_optimizer;
  unit_.squares_known = false;
  if (!squares_wanted_) return Ok{};
  return side().device().fill(squares_.data(), 0, MERON_SQUARES_BYTES, side().work());
}

Status ResidentGradient::end_squares() {
  Device& device = side().device();
  if (squares_wanted_) {
    MERON_TRY(device.copy(squares_here_.data, squares_.data(), MERON_SQUARES_BYTES, side().work()));
  }
  MERON_ASSIGN(done_, device.record(side().work(), std::move(done_)));
  return side().wake_after(side().work());
}

float ResidentGradient::scale(const ReduceOptions& options) const {
  return options.boundary ? options.scale(unit_.channel().size()) : 1.0f;
}

ResidentGradient::Pass ResidentGradient::pass_of(const ReduceOptions& options, bool ends) const {
  Pass pass;
  pass.options = options;
  pass.ends = ends;
  pass.between = between_replicas(unit_, options);
  pass.direct = pass.between && !ends &&
                sends_gradients(unit_.rank().plan, unit_.axes().mesh, !unit_.sum_started);
  return pass;
}

std::byte* ResidentGradient::row_sum(size_t flat) const {
  const bool apart = unit_.axes().replicas() && sums_apart(unit_);
  return (apart ? row_sums_ : sums_)[flat].data();
}

Status ResidentGradient::take(std::vector<DeviceMemory>& rooms, size_t flat, uint64_t bytes,
                              const char* what) {
  if (rooms[flat]) return Ok{};
  MERON_ASSIGN(rooms[flat],
               side().device().allocate(bytes, side().work(),
                                        fmt::format("{} of unit '{}'", what, unit_.name())));
  return Ok{};
}

Status ResidentGradient::prepare(const ReduceOptions& options, bool ends) {
  const Pass pass = pass_of(options, ends);
  const MeshShape& mesh = unit_.axes().mesh;
  for (size_t f = 0; f < sums_.size(); ++f) {
    const Flat& flat = unit_.flats()[f];
    if (!flat.desc.trainable) continue;
    if (!ends) {
      MERON_TRY(open_bucket(f));
      const uint64_t row = flat.row.size() * size_of(unit_.gradient_type(flat));
      if (mesh.shards > 1)
        MERON_TRY(take(rows_, f, (mesh.shards - 1) * row, "the peers' gradients"));
    }
    if (!pass.between) continue;
    MERON_TRY(take_parts(pass, f));
    if (pass.direct || !sums_apart(unit_)) continue;
    MERON_TRY(take(row_sums_, f, flat.row.size() * sizeof(float), "the sum of gradients"));
  }
  return Ok{};
}

DeviceGroup::Call ResidentGradient::call_of(const Pass& pass) const {
  return {pass.sequence, pass.deadline, fmt::format("reduce of unit '{}'", unit_.name())};
}

void ResidentGradient::count(const Channel& axis, int peer, uint64_t bytes) const {
  ::meron::add(unit_.rank().counters.reduced, bytes);
  if (!axis.is_local(peer)) ::meron::add(unit_.rank().counters.far_reduced, bytes);
}

Status ResidentGradient::exchange_rows(const Pass& pass) {
  const Axes& axes = unit_.axes();
  std::vector<meron_exchange_piece> pieces;
  for (size_t f = 0; f < sums_.size(); ++f) {
    if (!sums_[f]) continue;
    const Flat& flat = unit_.flats()[f];
    const uint64_t size = size_of(unit_.gradient_type(flat));
    const uint64_t bytes = flat.row.size() * size;
    std::byte* to = rows_[f].data();
    for (int peer = 0; peer < axes.shard->size(); ++peer) {
      if (peer == axes.own_shard()) continue;
      const Range row = row_range(flat.desc.elements, static_cast<uint64_t>(peer), axes.mesh);
      pieces.push_back(
          {peer, 0, buckets_[f].data() + row.begin * size, row.size() * size, to, bytes});
      to += bytes;
      count(*axes.shard, peer, bytes);
    }
  }
  return axes.devices->exchange(DeviceAxis::shard, pieces, call_of(pass));
}

Status ResidentGradient::sum_rows(const Pass& pass) {
  const Axes& axes = unit_.axes();
  if (axes.mesh.shards > 1) MERON_TRY(exchange_rows(pass));
  const bool last = !axes.replicas();
  const bool apart = !last && sums_apart(unit_);
  std::vector<const void*> rows(axes.mesh.shards);
  for (size_t f = 0; f < sums_.size(); ++f) {
    if (!sums_[f]) continue;
    const Flat& flat = unit_.flats()[f];
    const DType type = unit_.gradient_type(flat);
    const std::byte* received = rows_[f].data();
    for (int peer = 0; peer < static_cast<int>(rows.size()); ++peer) {
      const bool own = peer == axes.own_shard();
      rows[static_cast<size_t>(peer)] =
          own ? buckets_[f].data() + flat.row.begin * size_of(type) : received;
      if (!own) received += flat.row.size() * size_of(type);
    }
    MERON_TRY(
        side().device().reduce(reinterpret_cast<float*>(row_sum(f)), unit_.sum_started && !apart,
                               rows, type, last ? scale(pass.options) : 1.0f, flat.row.size(),
                               last && squares_wanted_ ? squares_.data() : nullptr, side().work()));
  }
  return Ok{};
}

Status ResidentGradient::sum(const ReduceOptions& options, bool ends, uint64_t sequence,
                             Deadline deadline) {
  showing_ = false;  // what the host saw was another sum
  Pass pass = pass_of(options, ends);
  pass.sequence = sequence;
  pass.deadline = deadline;
  if (pass.between) pass.exchange = ++unit_.exchanges;
  if (!ends) MERON_TRY(zero_missing());
  MERON_TRY(begin_squares(options));
  if (!pass.direct && !ends) MERON_TRY(sum_rows(pass));
  if (ends && !unit_.sum_started) {
    for (const DeviceMemory& sum : sums_) {
      if (sum) MERON_TRY(side().device().fill(sum.data(), 0, sum.bytes(), side().work()));
    }
  }
  if (pass.between) MERON_TRY(sum_parts(pass));
  MERON_TRY(end_squares());
  // In the order of the stream.
  for (auto* const rooms : {&buckets_, &rows_, &row_sums_, &encoded_, &parts_}) {
    for (DeviceMemory& room : *rooms) room.reset();
  }
  copies_.clear();
  return Ok{};
}

Status ResidentGradient::finish(const ReduceOptions& options) {
  showing_ = false;
  MERON_TRY(begin_squares(options));
  for (size_t f = 0; f < sums_.size(); ++f) {
    if (!sums_[f]) continue;
    MERON_TRY(side().device().reduce(data(f), unit_.sum_started, {}, DType::f32, scale(options),
                                     unit_.flats()[f].summed.size(),
                                     squares_wanted_ ? squares_.data() : nullptr, side().work()));
  }
  return end_squares();
}

Result<bool> ResidentGradient::come() {
  MERON_ASSIGN(const bool come, done_.come());
  if (!come) return false;
  if (!std::exchange(squares_wanted_, false)) return true;
  kernels::ExactPieces pieces;
  std::memcpy(&pieces, squares_here_.data, sizeof(pieces));
  unit_.squares = kernels::ExactSum(pieces);
  unit_.squares_known = true;
  return true;
}

Status ResidentGradient::show() {
  if (showing_) return Ok{};
  Rank& rank = unit_.rank();
  Device& device = side().device();
  if (shown_.empty()) {
    for (size_t f = 0; f < sums_.size(); ++f) {
      Flat& flat = unit_.flats()[f];
      if (!sums_[f]) continue;
      const auto allocate = [&] {
        const Recess recess;  // whoever calls has the turn
        return rank.arena().allocate(
            flat.summed.size() * sizeof(float), MemoryKind::gradient,
            fmt::format("the reduced gradient of unit '{}', seen by the host", unit_.name()));
      };
      MERON_ASSIGN(const Buffer buffer, allocate());
      shown_.push_back(buffer);
      flat.sum = reinterpret_cast<float*>(buffer.data);
    }
  }
  for (size_t f = 0; f < sums_.size(); ++f) {
    if (!sums_[f]) continue;
    const uint64_t bytes = unit_.flats()[f].summed.size() * sizeof(float);
    MERON_TRY(device.copy(unit_.flats()[f].sum, data(f), bytes, side().work()));
    ::meron::add(rank.counters.device_down, bytes);
  }
  MERON_TRY(device.synchronize(side().work()));
  showing_ = true;
  return Ok{};
}

Status ResidentGradient::take_back() {
  if (!std::exchange(showing_, false)) return Ok{};
  for (size_t f = 0; f < sums_.size(); ++f) {
    if (!sums_[f]) continue;
    const uint64_t bytes = unit_.flats()[f].summed.size() * sizeof(float);
    MERON_TRY(side().device().copy(data(f), unit_.flats()[f].sum, bytes, side().work()));
    ::meron::add(unit_.rank().counters.device_up, bytes);
  }
  return Ok{};
}

ResidentReduceOperation::ResidentReduceOperation(std::shared_ptr<Unit> unit,
                                                 const ReduceOptions& options, Deadline deadline)
    : Operation(unit->channel(), deadline), unit_(std::move(unit)), options_(options) {}

Result<std::shared_ptr<ResidentReduceOperation>> ResidentReduceOperation::begin(
    std::shared_ptr<Unit> unit, const ReduceOptions& options, bool ends, uint64_t sequence,
    Deadline deadline) {
  std::shared_ptr<ResidentReduceOperation> operation(
      new ResidentReduceOperation(std::move(unit), options, deadline));
  operation->set_sequence(sequence);
  Unit& target = *operation->unit_;
  MERON_TRY(target.enter(GradientState::reducing));
  ++target.reductions;
  target.reduction = operation;
  target.at_boundary = options.boundary;
  // It releases the lock while collectives are launched: others find the operation, and leave it.
  operation->set_running(true);
  Status summed = target.resident_gradient()->sum(options, ends, sequence, deadline);
  operation->set_running(false);
  if (!summed.ok()) {
    return fail_devices(target.channel(), std::move(summed).error().on(target.name()), sequence);
  }
  return operation;
}

Result<bool> ResidentReduceOperation::advance() {
  Unit& unit = *unit_;
  auto come = unit.resident_gradient()->come();
  if (!come.ok()) return channel_.fail(std::move(come).error().on(unit.name()));
  if (!*come) return false;
  if (unit.axes().devices != nullptr) {
    MERON_ASSIGN(const bool agreed, unit.axes().devices->check(sequence()));
    if (!agreed) return false;
  }
  unit.sum_started = !options_.boundary;
  MERON_TRY(unit.enter(options_.boundary ? GradientState::ready : GradientState::partial));
  return true;
}

std::string ResidentReduceOperation::describe() const {
  return fmt::format("reduce of unit '{}' on the device", unit_->name());
}

}  // namespace meron

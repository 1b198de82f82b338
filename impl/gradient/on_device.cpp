// SPDX-License-Identifier: Apache-2.0
#include "gradient/on_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <tuple>
#include <utility>

#include "plan/value_layout.h"
#include "quant/wire.h"

namespace meron {
namespace {

static_assert(MERON_SQUARES_BYTES == sizeof(kernels::ExactPieces));

// True if some elements of the flat belong to no tensor.
bool has_gaps(Unit& unit, size_t flat) {
  uint64_t covered = 0;
  for (const auto& param : unit.params()) {
    if (param->place.flat == flat) covered += param->count;
  }
  return covered != unit.flats()[flat].desc.elements;
}

}  // namespace

GradientOnDevice::GradientOnDevice(Gradient& gradient)
    : gradient_(gradient),
      place_(side().device(), side().work()),
      flats_(gradient.unit().flats().size()) {}

Status GradientOnDevice::hold(DeviceMemory& room, uint64_t bytes, const char* what) {
  MERON_TRY(take(room, bytes, what));
  held_ += bytes;
  ::meron::add(unit().rank().counters.device.held, bytes);
  return place_.zero(room.data(), bytes);
}

Result<std::unique_ptr<GradientOnDevice>> GradientOnDevice::create(Gradient& gradient) {
  auto memory = std::make_unique<GradientOnDevice>(gradient);
  const Unit& unit = gradient.unit();
  Rank& rank = unit.rank();
  const MeshShape& mesh = unit.axes().mesh;
  constexpr const char* kWhat = "the reduced gradient";
  for (size_t f = 0; f < memory->flats_.size(); ++f) {
    const Flat& flat = gradient.unit().flats()[f];
    if (!flat.desc.trainable) continue;
    Rooms& rooms = memory->flats_[f];
    MERON_TRY(memory->hold(rooms.sum,
                           device_sum_bytes(rank.plan, flat.desc.elements,
                                            static_cast<uint64_t>(unit.axes().index()), mesh),
                           kWhat));
    const uint64_t lost = device_feedback_bytes(rank.plan, flat.row.size(), mesh);
    if (lost != 0) MERON_TRY(memory->hold(rooms.residual, lost, "the feedback of the gradient"));
  }
  MERON_TRY(memory->take(memory->squares_there_, MERON_SQUARES_BYTES, kWhat));
  memory->squares_.there = memory->squares_there_.data();
  MERON_ASSIGN(memory->squares_here_,
               rank.arena().allocate(MERON_SQUARES_BYTES, MemoryKind::staging,
                                     fmt::format("{} of unit '{}'", kWhat, unit.name())));
  rank.pin(memory->squares_here_.data, memory->squares_here_.bytes);
  return memory;
}

GradientOnDevice::~GradientOnDevice() {
  Rank& rank = unit().rank();
  // The device may still be copying the squares.
  (void)side().device().synchronize(side().work());
  rank.counters.device.held.fetch_sub(held_);
  for (const Rooms& rooms : flats_) {
    if (rooms.shown) rank.arena().release(rooms.shown);
  }
  if (!squares_here_) return;
  side().unpin(squares_here_.data);
  rank.arena().release(squares_here_);
}

Status GradientOnDevice::take(DeviceMemory& room, uint64_t bytes, const char* what) {
  if (room) return Ok{};
  MERON_ASSIGN(room, side().device().allocate(bytes, side().work(),
                                              fmt::format("{} of unit '{}'", what, unit().name())));
  return Ok{};
}

Status GradientOnDevice::open_bucket(size_t flat) {
  DeviceMemory& bucket = flats_[flat].bucket;
  if (bucket) return Ok{};
  const Flat& target = unit().flats()[flat];
  const uint64_t bytes = target.desc.elements * size_of(gradient_.type_of(target));
  MERON_TRY(take(bucket, bytes, "the gradient bucket"));
  return has_gaps(unit(), flat) ? place_.zero(bucket.data(), bytes) : Status(Ok{});
}

// ---- A micro-batch -----------------------------------------------------------------------------

Status GradientOnDevice::add(std::span<const GivenGradient> gradients, void* stream) {
  const std::vector<bool> fresh = gradient_.fresh;
  Status packed = pack(gradients, stream);
  if (packed.ok()) return packed;
  gradient_.fresh = fresh;  // discards the gradients added so far
  // Afterwards the device no longer reads the caller's memory. A device failure is reported below.
  (void)side().device().synchronize(side().work());
  copies_.clear();
  Error error = std::move(packed).error();
  // If the device failed, this rank cannot contribute. It reports the failure so that peers stop
  // waiting.
  if (error.code() == MERON_E_DEVICE) {
    return unit().channel().fail(std::move(error).on(unit().name()));
  }
  return error;
}

Result<const std::byte*> GradientOnDevice::on_device_now(const GivenGradient& gradient) {
  if (gradient.on_device) return gradient.data;
  const Param& param = *unit().params()[gradient.param];
  const uint64_t bytes = param.count * size_of(gradient.dtype);
  MERON_ASSIGN(DeviceMemory copy,
               side().device().allocate(bytes, side().work(),
                                        fmt::format("the gradient of '{}'", param.desc.name)));
  MERON_TRY(side().device().copy(copy.data(), gradient.data, bytes, side().work()));
  ::meron::add(unit().rank().counters.device.up, bytes);
  copies_.push_back(std::move(copy));
  return copies_.back().data();
}

Status GradientOnDevice::pack(std::span<const GivenGradient> gradients, void* stream) {
  Device& device = side().device();
  MERON_ASSIGN(const DeviceEvent written, device.record(stream));
  MERON_TRY(device.wait(side().work(), written));
  // Keyed by the bucket's dtype, the gradient's dtype, and true to add rather than copy.
  std::map<std::tuple<DType, DType, bool>, std::vector<meron_cast_task>> tasks;
  for (const GivenGradient& each : gradients) {
    const Param& param = *unit().params()[each.param];
    if (param.count == 0) continue;
    const size_t flat = param.place.flat;
    MERON_TRY(open_bucket(flat));
    const DType type = gradient_.type_of(unit().flats()[flat]);
    MERON_ASSIGN(const std::byte* const from, on_device_now(each));
    std::byte* const to = bucket(flat) + param.place.offset * size_of(type);
    tasks[{type, each.dtype, !gradient_.fresh[each.param]}].push_back({to, from, param.count});
  }
  for (const auto& [kind, list] : tasks) {
    const auto& [to, from, more] = kind;
    MERON_TRY(device.cast(list, to, from, more, side().work()));
  }
  for (const GivenGradient& each : gradients) gradient_.fresh[each.param] = false;
  // The stream copies from pinned memory later, but the caller may change it once this returns.
  if (!copies_.empty()) MERON_TRY(device.synchronize(side().work()));
  return Ok{};
}

Status GradientOnDevice::complete() {
  for (size_t i = 0; i < unit().params().size(); ++i) {
    const Param& param = *unit().params()[i];
    if (!gradient_.fresh[i] || !param.desc.trainable) continue;
    gradient_.fresh[i] = false;
    const size_t flat = param.place.flat;
    MERON_TRY(open_bucket(flat));
    const uint64_t size = size_of(gradient_.type_of(unit().flats()[flat]));
    MERON_TRY(place_.zero(bucket(flat) + param.place.offset * size, param.count * size));
  }
  return Ok{};
}

// ---- A reduction -------------------------------------------------------------------------------

Status GradientOnDevice::prepare(const Pass& pass) {
  const MeshShape& mesh = unit().axes().mesh;
  for (size_t f = 0; f < flats_.size(); ++f) {
    const Flat& flat = unit().flats()[f];
    if (!flat.desc.trainable) continue;
    Rooms& rooms = flats_[f];
    if (!pass.ends) {
      MERON_TRY(open_bucket(f));
      const uint64_t row = flat.row.size() * size_of(gradient_.type_of(flat));
      if (mesh.shards > 1) {
        MERON_TRY(take(rooms.rows, (mesh.shards - 1) * row, "the peers' gradients"));
      }
    }
    if (!pass.between) continue;
    MERON_TRY(take_for_replicas(pass, f));
    if (pass.direct || !sums_apart(unit())) continue;
    MERON_TRY(take(rooms.row_sum, flat.row.size() * sizeof(float), "the sum of gradients"));
  }
  return Ok{};
}

Status GradientOnDevice::take_for_replicas(const Pass& pass, size_t flat) {
  const MeshShape& mesh = unit().axes().mesh;
  constexpr const char* kParts = "the replicas' gradients";
  Rooms& rooms = flats_[flat];
  if (coded()) {
    const uint64_t room = mesh.replicas * encoded_stride(flat);
    MERON_TRY(take(rooms.encoded, room, "the encoded gradients"));
    return take(rooms.parts, room, kParts);
  }
  const uint64_t part = unit().flats()[flat].part.size() * size_of(sent_type(pass, flat));
  return take(rooms.parts, (mesh.replicas - 1) * part, kParts);
}

DType GradientOnDevice::sent_type(const Pass& pass, size_t flat) const {
  return pass.direct ? gradient_.type_of(unit().flats()[flat]) : DType::f32;
}

uint64_t GradientOnDevice::encoded_stride(size_t flat) const {
  return device_encoded_stride(gradient_.codec, unit().flats()[flat].row.size(), unit().axes().mesh,
                               sizeof(float));
}

std::byte* GradientOnDevice::shared(size_t flat) const {
  return coded() ? flats_[flat].parts.data() : reinterpret_cast<std::byte*>(row(flat));
}

uint64_t GradientOnDevice::shared_stride(size_t flat) const {
  if (coded()) return encoded_stride(flat);
  return shard_elements(unit().flats()[flat].row.size(), unit().axes().mesh.replicas) *
         sizeof(float);
}

float* GradientOnDevice::row(size_t flat) const {
  if (sums_apart(unit())) return as_floats(flats_[flat].row_sum);
  const Flat& target = unit().flats()[flat];
  return sum(flat) + (target.row.begin - target.summed.begin);
}

std::byte* GradientOnDevice::encoded(size_t flat, int replica) const {
  return flats_[flat].encoded.data() + static_cast<uint64_t>(replica) * encoded_stride(flat);
}

// The sums of all replicas are in `parts`.
std::byte* GradientOnDevice::encoded_sum(size_t flat) const {
  const auto own = static_cast<uint64_t>(unit().axes().own_replica());
  return flats_[flat].parts.data() + own * encoded_stride(flat);
}

// Encoded parts are indexed by replica. Other bytes are contiguous and leave this rank out.
std::byte* GradientOnDevice::room(const Pass& pass, Step step, size_t flat, int member) const {
  const Axes& axes = unit().axes();
  const Flat& target = unit().flats()[flat];
  auto place = static_cast<uint64_t>(member);
  if (step == Step::shards) {
    if (member > axes.own_shard()) --place;
    return flats_[flat].rows.data() +
           place * target.row.size() * size_of(gradient_.type_of(target));
  }
  std::byte* const parts = flats_[flat].parts.data();
  if (coded()) return parts + place * encoded_stride(flat);
  if (member > axes.own_replica()) --place;
  return parts + place * target.part.size() * size_of(sent_type(pass, flat));
}

Status GradientOnDevice::begin_squares(bool wanted) {
  showing_ = false;  // the host was shown an earlier sum
  squares_wanted_ = wanted;
  gradient_.squares.reset();
  return wanted ? place_.zero(squares_.there, MERON_SQUARES_BYTES) : Status(Ok{});
}

// The memory is released in stream order, after the work that reads it.
void GradientOnDevice::release_bucket() {
  for (Rooms& rooms : flats_) {
    for (DeviceMemory* const room :
         {&rooms.bucket, &rooms.rows, &rooms.row_sum, &rooms.encoded, &rooms.parts}) {
      room->reset();
    }
  }
  copies_.clear();
}

Status GradientOnDevice::end_work() {
  Device& device = side().device();
  if (squares_wanted_) {
    MERON_TRY(device.copy(squares_here_.data, squares_.there, MERON_SQUARES_BYTES, side().work()));
  }
  MERON_ASSIGN(done_, device.record(side().work(), std::move(done_)));
  return side().wake_after(side().work());
}

Result<bool> GradientOnDevice::settled() {
  MERON_ASSIGN(const bool come, done_.come());
  if (!come || !std::exchange(squares_wanted_, false)) return come;
  kernels::ExactPieces pieces;
  std::memcpy(&pieces, squares_here_.data, sizeof(pieces));
  gradient_.squares = kernels::ExactSum(pieces);
  return true;
}

// ---- As the host sees it -----------------------------------------------------------------------

Result<float*> GradientOnDevice::show(size_t flat) {
  const auto shown = [&] { return reinterpret_cast<float*>(flats_[flat].shown.data); };
  if (showing_) return shown();
  Rank& rank = unit().rank();
  Device& device = side().device();
  for (size_t f = 0; f < flats_.size(); ++f) {
    Rooms& rooms = flats_[f];
    if (!rooms.sum) continue;
    const uint64_t bytes = unit().flats()[f].summed.size() * sizeof(float);
    if (!rooms.shown) {
      const auto allocate = [&] {
        const Recess recess;  // whoever calls has the turn
        return rank.arena().allocate(
            bytes, MemoryKind::gradient,
            fmt::format("the reduced gradient of unit '{}', seen by the host", unit().name()));
      };
      MERON_ASSIGN(rooms.shown, allocate());
    }
    MERON_TRY(device.copy(rooms.shown.data, rooms.sum.data(), bytes, side().work()));
    ::meron::add(rank.counters.device.down, bytes);
  }
  MERON_TRY(device.synchronize(side().work()));
  showing_ = true;
  return shown();
}

Status GradientOnDevice::take_back() {
  if (!std::exchange(showing_, false)) return Ok{};
  for (size_t f = 0; f < flats_.size(); ++f) {
    const Rooms& rooms = flats_[f];
    if (!rooms.sum) continue;
    const uint64_t bytes = unit().flats()[f].summed.size() * sizeof(float);
    MERON_TRY(side().device().copy(rooms.sum.data(), rooms.shown.data, bytes, side().work()));
    ::meron::add(unit().rank().counters.device.up, bytes);
  }
  return Ok{};
}

Status GradientOnDevice::read_feedback(size_t flat, const Range& range, std::byte* out) const {
  const Recess recess;  // the copies block the thread
  const uint64_t bytes = range.size() * sizeof(float);
  Device& device = side().device();
  MERON_TRY(device.copy(out, residual(flat) + (range.begin - unit().flats()[flat].row.begin), bytes,
                        side().work()));
  ::meron::add(unit().rank().counters.device.down, bytes);
  return device.synchronize(side().work());
}

Status GradientOnDevice::write_feedback(size_t flat, const Range& range, const std::byte* data) {
  const Recess recess;
  const uint64_t bytes = range.size() * sizeof(float);
  Device& device = side().device();
  MERON_TRY(device.copy(residual(flat) + (range.begin - unit().flats()[flat].row.begin), data,
                        bytes, side().work()));
  ::meron::add(unit().rank().counters.device.up, bytes);
  return device.synchronize(side().work());
}

}  // namespace meron

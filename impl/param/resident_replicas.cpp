// SPDX-License-Identifier: Apache-2.0
// The part of a sum on the device that is between replicas: each sums its part of all their rows.
// With a codec rows are encoded part by part, for the replica that sums it; what was lost stays
// here as feedback. reduce_replicas.cpp has the same on the host, and the papers.
#include "param/device_group.h"
#include "param/resident_gradient.h"
#include "plan/value_layout.h"
#include "quant/device_wire.h"

namespace meron {

bool ResidentGradient::coded() const {
  return unit_.rank().plan.gradient.codec.kind != CodecKind::none;
}

DeviceWire ResidentGradient::wire() const {
  return {unit_.gradient_codec, side().device(), side().work()};
}

uint64_t ResidentGradient::wire_bytes_of(uint64_t elements) const {
  return wire_bytes(unit_.gradient_codec, elements, sizeof(float));
}

uint64_t ResidentGradient::encoded_stride(size_t flat) const {
  return device_encoded_stride(unit_.gradient_codec, unit_.flats()[flat].row.size(),
                               unit_.axes().mesh, sizeof(float));
}

Range ResidentGradient::part_of_replica(size_t flat, int replica) const {
  const Axes& axes = unit_.axes();
  return part_range(unit_.flats()[flat].desc.elements,
                    static_cast<uint64_t>(axes.of_replica(replica)), axes.mesh);
}

const std::byte* ResidentGradient::exchanged_row(const Pass& pass, size_t flat) const {
  return pass.direct ? buckets_[flat].data() : row_sum(flat);
}

DType ResidentGradient::exchanged_type(const Pass& pass, size_t flat) const {
  return pass.direct ? unit_.gradient_type(unit_.flats()[flat]) : DType::f32;
}

Status ResidentGradient::take_parts(const Pass& pass, size_t flat) {
  const MeshShape& mesh = unit_.axes().mesh;
  constexpr const char* kParts = "the replicas' gradients";
  if (coded()) {
    const uint64_t room = mesh.replicas * encoded_stride(flat);
    MERON_TRY(take(encoded_, flat, room, "the encoded gradients"));
    return take(parts_, flat, room, kParts);
  }
  const uint64_t part = unit_.flats()[flat].part.size() * size_of(exchanged_type(pass, flat));
  return take(parts_, flat, (mesh.replicas - 1) * part, kParts);
}

Status ResidentGradient::drop_feedback() {
  for (const DeviceMemory& residual : residuals_) {
    if (!residual) continue;
    MERON_TRY(side().device().fill(residual.data(), 0, residual.bytes(), side().work()));
  }
  return Ok{};
}

std::byte* ResidentGradient::feedback_from(size_t flat, uint64_t element) const {
  return residuals_[flat].data() + (element - unit_.flats()[flat].row.begin) * sizeof(float);
}

Status ResidentGradient::read_feedback(size_t flat, const Range& range, std::byte* out) const {
  const Recess recess;  // the copies keep the thread
  const uint64_t bytes = range.size() * sizeof(float);
  Device& device = side().device();
  MERON_TRY(device.copy(out, feedback_from(flat, range.begin), bytes, side().work()));
  ::meron::add(unit_.rank().counters.device_down, bytes);
  return device.synchronize(side().work());
}

Status ResidentGradient::write_feedback(size_t flat, const Range& range, const std::byte* data) {
  const Recess recess;
  const uint64_t bytes = range.size() * sizeof(float);
  Device& device = side().device();
  MERON_TRY(device.copy(feedback_from(flat, range.begin), data, bytes, side().work()));
  ::meron::add(unit_.rank().counters.device_up, bytes);
  return device.synchronize(side().work());
}

Status ResidentGradient::encode_rows(const Pass& pass) {
  const Codec& codec = unit_.gradient_codec;
  if (codec.feedback_reset > 0 && pass.exchange % codec.feedback_reset == 0) {
    MERON_TRY(drop_feedback());
  }
  std::vector<meron_encode_task> tasks;
  for (size_t f = 0; f < sums_.size(); ++f) {
    if (!sums_[f]) continue;
    const Flat& flat = unit_.flats()[f];
    for (int i = 0; i < unit_.axes().replica->size(); ++i) {
      const Range part = part_of_replica(f, i);
      if (part.size() == 0) continue;
      const uint64_t at_row = part.begin - flat.row.begin;
      float* const residual =
          residuals_[f] ? reinterpret_cast<float*>(residuals_[f].data()) + at_row : nullptr;
      tasks.push_back({encoded_[f].data() + static_cast<uint64_t>(i) * encoded_stride(f),
                       reinterpret_cast<const float*>(row_sum(f)) + at_row, residual, part.size(),
                       rounding_seed(unit_, pass.exchange, f, i)});
    }
  }
  return wire().encode(tasks, DType::f32);
}

// What comes of a replica lies in parts_: encoded ones each in a place of its own, others side by
// side without this rank's.
std::byte* ResidentGradient::received_part(const Pass& pass, size_t flat, int replica) const {
  auto place = static_cast<uint64_t>(replica);
  if (coded()) return parts_[flat].data() + place * encoded_stride(flat);
  if (replica > unit_.axes().own_replica()) --place;
  return parts_[flat].data() +
         place * unit_.flats()[flat].part.size() * size_of(exchanged_type(pass, flat));
}

// This rank's row, as a replica is to have its part.
const std::byte* ResidentGradient::part_for(const Pass& pass, size_t flat, int replica) const {
  if (coded()) {
    return encoded_[flat].data() + static_cast<uint64_t>(replica) * encoded_stride(flat);
  }
  const uint64_t at_row = part_of_replica(flat, replica).begin - unit_.flats()[flat].row.begin;
  return exchanged_row(pass, flat) + at_row * size_of(exchanged_type(pass, flat));
}

Status ResidentGradient::exchange_parts(const Pass& pass) {
  const Axes& axes = unit_.axes();
  std::vector<meron_exchange_piece> pieces;
  for (size_t f = 0; f < sums_.size(); ++f) {
    if (!sums_[f]) continue;
    const auto bytes_of = [&](const Range& part) {
      return coded() ? wire_bytes_of(part.size()) : part.size() * size_of(exchanged_type(pass, f));
    };
    const uint64_t bytes = bytes_of(unit_.flats()[f].part);
    for (int peer = 0; peer < axes.replica->size(); ++peer) {
      if (peer == axes.own_replica()) continue;
      pieces.push_back({peer, 0, part_for(pass, f, peer), bytes_of(part_of_replica(f, peer)),
                        received_part(pass, f, peer), bytes});
      count(*axes.replica, peer, bytes);
    }
  }
  return axes.devices->exchange(DeviceAxis::replica, pieces, call_of(pass));
}

Status ResidentGradient::sum_parts(const Pass& pass) {
  const Axes& axes = unit_.axes();
  const bool shares = !over_all(unit_.rank().plan.optimizer, axes.mesh);
  if (coded()) MERON_TRY(encode_rows(pass));
  MERON_TRY(exchange_parts(pass));
  // What travels on encoded is squared as it is decoded.
  std::byte* const squares = squares_wanted_ && !(coded() && shares) ? squares_.data() : nullptr;
  const bool accumulate = unit_.sum_started && sums_apart(unit_);
  std::vector<const void*> parts(axes.mesh.replicas);
  for (size_t f = 0; f < sums_.size(); ++f) {
    if (!sums_[f]) continue;
    const Flat& flat = unit_.flats()[f];
    for (int i = 0; i < static_cast<int>(parts.size()); ++i) {
      parts[static_cast<size_t>(i)] =
          i == axes.own_replica() ? part_for(pass, f, i) : received_part(pass, f, i);
    }
    float* const sum = data(f) + (flat.part.begin - flat.summed.begin);
    const float factor = scale(pass.options);
    MERON_TRY(coded() ? wire().sum(sum, accumulate, parts, factor, flat.part.size(), squares)
                      : side().device().reduce(sum, accumulate, parts, exchanged_type(pass, f),
                                               factor, flat.part.size(), squares, side().work()));
  }
  if (!shares) return Ok{};
  return coded() ? share_encoded(pass) : share_parts(pass);
}

Status ResidentGradient::share_parts(const Pass& pass) {
  const Axes& axes = unit_.axes();
  std::vector<DeviceGroup::Part> parts;
  for (size_t f = 0; f < sums_.size(); ++f) {
    if (!sums_[f]) continue;
    const Flat& flat = unit_.flats()[f];
    const uint64_t bytes = shard_elements(flat.row.size(), axes.mesh.replicas) * sizeof(float);
    if (bytes == 0) continue;
    std::byte* const row = sums_[f].data();
    parts.push_back({row + static_cast<uint64_t>(axes.own_replica()) * bytes, row, bytes});
    for (int peer = 0; peer < axes.replica->size(); ++peer) {
      if (peer == axes.own_replica()) continue;
      const auto place = static_cast<uint64_t>(axes.of_replica(peer));
      count(*axes.replica, peer,
            part_range(flat.desc.elements, place, axes.mesh).size() * sizeof(float));
    }
  }
  return axes.devices->share_sums(DeviceAxis::replica, parts, call_of(pass));
}

// All replicas get what comes of decoding, this one too.
Status ResidentGradient::share_encoded(const Pass& pass) {
  const Axes& axes = unit_.axes();
  const int own = axes.own_replica();
  std::vector<meron_encode_task> encodes;
  std::vector<meron_cast_task> own_decodes, decodes;
  std::vector<DeviceGroup::Part> parts;
  for (size_t f = 0; f < sums_.size(); ++f) {
    if (!sums_[f]) continue;
    const Flat& flat = unit_.flats()[f];
    const uint64_t stride = encoded_stride(f);
    std::byte* const slots = parts_[f].data();
    if (stride > 0) parts.push_back({slots + static_cast<uint64_t>(own) * stride, slots, stride});
    for (int i = 0; i < axes.replica->size(); ++i) {
      const Range part = part_of_replica(f, i);
      if (part.size() == 0) continue;
      float* const sum = data(f) + (part.begin - flat.summed.begin);
      std::byte* const slot = slots + static_cast<uint64_t>(i) * stride;
      if (i == own) {
        encodes.push_back(
            {slot, sum, nullptr, part.size(), rounding_seed(unit_, pass.exchange, f, -1)});
        own_decodes.push_back({sum, slot, part.size()});
        continue;
      }
      decodes.push_back({sum, slot, part.size()});
      count(*axes.replica, i, wire_bytes_of(part.size()));
    }
  }
  MERON_TRY(wire().encode(encodes, DType::f32));
  MERON_TRY(wire().decode(own_decodes, DType::f32));
  for (const meron_cast_task& each : own_decodes) {
    if (!squares_wanted_) break;
    MERON_TRY(side().device().reduce(static_cast<float*>(each.to), true, {}, DType::f32, 1.0f,
                                     each.count, squares_.data(), side().work()));
  }
  MERON_TRY(axes.devices->share_sums(DeviceAxis::replica, parts, call_of(pass)));
  return wire().decode(decodes, DType::f32);
}

}  // namespace meron

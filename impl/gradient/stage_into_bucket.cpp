// SPDX-License-Identifier: Apache-2.0
// Copies or adds the caller's gradients to a bucket of the host.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "gradient/on_host.h"
#include "kernels/cpu/accumulate.h"
#include "kernels/cpu/copy.h"

namespace meron {
namespace {

// Copies elements `range` of the flat from `data` into the bucket.
void copy_range(Rank& rank, std::byte* bucket, const Range& range, uint64_t size,
                const std::byte* data, CopyPace::Way way) {
  std::byte* const place = bucket + range.begin * size;
  rank.threads.for_range(
      0, range.size(), kBlock, kInlineElements, [&](int, uint64_t begin, uint64_t end) {
        if (way == CopyPace::streamed) {
          kernels::hand_over(place + begin * size, data + begin * size, (end - begin) * size);
        } else {
          kernels::copy(place + begin * size, data + begin * size, (end - begin) * size);
        }
      });
}

// Back to front, because an f32 takes the room of two elements: a write never reaches elements that
// are still unread.
void widen_in_place(ThreadPool& threads, std::byte* bucket, DType type, uint64_t count) {
  uint64_t end = count;
  while (end > kBlock) {
    const uint64_t first = round_up((end + 1) / 2, kTensorAlign);
    threads.for_range(first, end, kBlock, kInlineElements, [&](int, uint64_t begin, uint64_t to) {
      kernels::convert(bucket + begin * sizeof(float), kernel_type(DType::f32),
                       bucket + begin * size_of(type), kernel_type(type), to - begin);
    });
    end = first;
  }
  alignas(64) std::array<std::byte, kBlock * sizeof(float)> rest;
  std::memcpy(rest.data(), bucket, end * size_of(type));
  kernels::convert(bucket, kernel_type(DType::f32), rest.data(), kernel_type(type), end);
}

// Rounds a gradient to `type`, as a bucket of that type would, and adds it to f32 values.
void add_rounded(std::byte* to, DType type, const std::byte* from, DType dtype, uint64_t count) {
  alignas(64) std::array<std::byte, kBlock * sizeof(float)> rounded;
  for (uint64_t begin = 0; begin < count; begin += kBlock) {
    const uint64_t n = std::min(kBlock, count - begin);
    kernels::convert(rounded.data(), kernel_type(type), from + begin * size_of(dtype),
                     kernel_type(dtype), n);
    kernels::accumulate(to + begin * sizeof(float), kernel_type(DType::f32), rounded.data(),
                        kernel_type(type), n);
  }
}

}  // namespace

Status GradientOnHost::add(std::span<const GivenGradient> gradients, void* stream) {
  if (!gradients.empty()) MERON_TRY(widen());
  // Comes first because it may run out of memory: nothing is added then, and the caller may retry.
  if (std::any_of(gradients.begin(), gradients.end(),
                  [](const GivenGradient& each) { return each.on_device; })) {
    MERON_ASSIGN(download_, Download::begin(gradient_, *this, gradients, stream));
  }
  for (const GivenGradient& each : gradients) {
    if (!each.on_device) accumulate(each.param, each.data, each.dtype);
  }
  return Ok{};
}

Result<bool> GradientOnHost::added() {
  if (!download_) return true;
  MERON_ASSIGN(const bool ended, download_->end());
  if (ended) download_.reset();
  return ended;
}

Status GradientOnHost::complete() {
  for (size_t i = 0; i < unit().params().size(); ++i) {
    if (gradient_.fresh[i] && unit().params()[i]->desc.trainable) (void)place_of(i, false);
  }
  return Ok{};
}

std::byte* GradientOnHost::place_of(size_t param, bool overwrite) {
  const Param& target = *unit().params()[param];
  const uint64_t size = size_of(gradient_.type_of(unit().flat_of(target)));
  std::byte* const place = flats_[target.place.flat].bucket + target.place.offset * size;
  const bool zero = gradient_.fresh[param] && !overwrite;
  gradient_.fresh[param] = false;
  if (!zero) return place;
  const Recess recess(target.count >= kInlineElements);
  std::memset(place, 0, target.count * size);
  return place;
}

void GradientOnHost::accumulate(size_t param, const std::byte* data, DType dtype) {
  const bool first = gradient_.fresh[param];
  gradient_.fresh[param] = false;
  put(param, data, dtype, first);
}

void GradientOnHost::put(size_t param, const std::byte* data, DType dtype, bool first) {
  const Param& target = *unit().params()[param];
  const Flat& flat = unit().flat_of(target);
  const DType type = gradient_.type_of(flat);
  const DType given = gradient_dtype(unit().rank().plan, flat.desc.dtype);
  std::byte* const place = flats_[target.place.flat].bucket + target.place.offset * size_of(type);
  const Recess recess(target.count >= kInlineElements);
  if (first && type == dtype && unit().read_by_peers()) {
    return stage(target.place.flat, target, data);
  }
  unit().rank().threads.for_range(
      0, target.count, kBlock, kInlineElements, [&](int, uint64_t begin, uint64_t end) {
        std::byte* to = place + begin * size_of(type);
        const std::byte* from = data + begin * size_of(dtype);
        if (first) {
          kernels::convert(to, kernel_type(type), from, kernel_type(dtype), end - begin);
        } else if (given == dtype || !gradient_.widened) {
          kernels::accumulate(to, kernel_type(type), from, kernel_type(dtype), end - begin);
        } else {
          add_rounded(to, given, from, dtype, end - begin);
        }
      });
}

// The first gradient of a param, in the bucket's type, into a bucket that peers read.
void GradientOnHost::stage(size_t index, const Param& param, const std::byte* data) {
  Rank& rank = unit().rank();
  const Flat& flat = unit().flats()[index];
  const uint64_t size = size_of(gradient_.type_of(flat));
  const Range all{param.place.offset, param.place.offset + param.count};
  // No peer reads this rank's own shard if gradients are sharded and there are no replicas.
  Range own{all.end, all.end};
  if (is_sharded(rank.plan.gradient) && !unit().axes().replicas()) {
    own.begin = std::clamp(flat.row.begin, all.begin, all.end);
    own.end = std::clamp(flat.row.end, own.begin, all.end);
  }
  const auto from = [&](uint64_t element) { return data + (element - all.begin) * size; };
  std::byte* const bucket = flats_[index].bucket;
  // Peers wait for their shards, so these are copied first.
  const uint64_t theirs = all.size() - own.size();
  if (theirs != 0) {
    rank.ring.pace.run(theirs * size, [&](CopyPace::Way way) {
      for (const Range& range : {Range{all.begin, own.begin}, Range{own.end, all.end}}) {
        if (range.size() != 0) copy_range(rank, bucket, range, size, from(range.begin), way);
      }
    });
  }
  if (own.size() != 0) copy_range(rank, bucket, own, size, from(own.begin), CopyPace::stored);
}

// ---- From the second micro-batch on, buckets of 16-bit params are f32 --------------------------

Status GradientOnHost::widen() {
  Unit& unit = this->unit();
  Rank& rank = unit.rank();
  if (!gradient_.adds || gradient_.widened || !unit.may_widen()) return Ok{};
  for (size_t f = 0; f < flats_.size(); ++f) {
    const Flat& flat = unit.flats()[f];
    if (!flat.desc.trainable || !widens_in_place(flat)) continue;
    const Recess recess;  // for the allocation; the caller has the turn
    MERON_TRY(rank.arena().extend(
        flats_[f].first, flat.desc.elements * sizeof(float),
        fmt::format("the gradient of unit '{}', added up in f32", unit.name())));
  }
  for (size_t f = 0; f < flats_.size(); ++f) {
    const Flat& flat = unit.flats()[f];
    if (!flat.desc.trainable || !widens(rank.plan, flat.desc.dtype)) continue;
    const DType type = gradient_.type_of(flat);
    const Recess recess(flat.desc.elements >= kInlineElements);
    if (widens_in_place(flat)) {
      widen_in_place(rank.threads, flats_[f].bucket, type, flat.desc.elements);
      continue;
    }
    float* const sum = flats_[f].sum;
    rank.threads.for_range(0, flat.desc.elements, kBlock, kInlineElements,
                           [&](int, uint64_t begin, uint64_t end) {
                             kernels::convert(sum + begin, kernel_type(DType::f32),
                                              flats_[f].bucket + begin * size_of(type),
                                              kernel_type(type), end - begin);
                           });
    move_bucket(f, reinterpret_cast<std::byte*>(sum),
                unit.own_slot().offsets.sums[f].load(std::memory_order_relaxed));
  }
  gradient_.widened = true;
  return Ok{};
}

void GradientOnHost::narrow() {
  if (!gradient_.widened) return;
  gradient_.widened = false;
  for (size_t f = 0; f < flats_.size(); ++f) {
    const Buffer& first = flats_[f].first;
    if (first) move_bucket(f, first.data, first.offset);
  }
  zero_padding();
}

// Every peer has consumed the last reduction, so it reads neither of the two words now.
void GradientOnHost::move_bucket(size_t flat, std::byte* to, uint64_t offset) {
  flats_[flat].bucket = to;
  for (auto& offsets : unit().own_slot().offsets.buckets) {
    offsets[flat].store(offset, std::memory_order_relaxed);
  }
}

// The elements between tensors count in the norm, so they must be zero. A bucket of the ring has
// old values of another unit there, and a bucket that was f32 has old values of its own.
void GradientOnHost::zero_padding() {
  for (const auto& param : unit().params()) {
    const Flat& flat = unit().flat_of(*param);
    if (!flat.desc.trainable) continue;
    const uint64_t size = size_of(gradient_.type_of(flat));
    const uint64_t end = param->place.offset + param->count;
    std::memset(flats_[param->place.flat].bucket + end * size, 0,
                (round_up(end, kTensorAlign) - end) * size);
  }
}

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
// How the caller's gradients come into a bucket of the host: copied or added, from its memory or
// from the device's.
#include <algorithm>
#include <cstring>

#include "gradient/on_host.h"
#include "kernels/cpu/accumulate.h"
#include "kernels/cpu/copy.h"

namespace meron {
namespace {

// Copies elements `range` of the flat, of which `data` is the first.
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

}  // namespace

Status GradientOnHost::add(std::span<const GivenGradient> gradients, void* stream) {
  // Before anything is added, as it may lack memory: the call may be made again.
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
  const uint64_t size = size_of(unit().gradient_type(unit().flat_of(target)));
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
  const DType type = unit().gradient_type(unit().flat_of(target));
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
        } else {
          kernels::accumulate(to, kernel_type(type), from, kernel_type(dtype), end - begin);
        }
      });
}

// The first gradient of a param, in the bucket's type, into a bucket that peers read.
void GradientOnHost::stage(size_t index, const Param& param, const std::byte* data) {
  Rank& rank = unit().rank();
  const Flat& flat = unit().flats()[index];
  const uint64_t size = size_of(unit().gradient_type(flat));
  const Range all{param.place.offset, param.place.offset + param.count};
  // No peer reads this rank's own shard if sums leave the bucket and are not between replicas.
  Range own{all.end, all.end};
  if (is_sharded(rank.plan.gradient) && !unit().axes().replicas()) {
    own.begin = std::clamp(flat.row.begin, all.begin, all.end);
    own.end = std::clamp(flat.row.end, own.begin, all.end);
  }
  const auto from = [&](uint64_t element) { return data + (element - all.begin) * size; };
  std::byte* const bucket = flats_[index].bucket;
  // First what peers wait for.
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

// A bucket of the ring served another unit before: what lies between the tensors is not zero.
void GradientOnHost::zero_padding() {
  for (const auto& param : unit().params()) {
    const Flat& flat = unit().flat_of(*param);
    if (!flat.desc.trainable) continue;
    const uint64_t size = size_of(unit().gradient_type(flat));
    const uint64_t end = param->place.offset + param->count;
    std::memset(flats_[param->place.flat].bucket + end * size, 0,
                (round_up(end, kTensorAlign) - end) * size);
  }
}

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
// The values of a unit as they travel by a codec, or lie at rest.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "base/hash.h"
#include "kernels/cpu/reduce.h"
#include "unit/unit.h"

namespace meron {
namespace {

double squares_of(Rank& rank, const std::byte* values, DType dtype, uint64_t count) {
  constexpr uint64_t kChunk = 16 * kBlock;
  std::vector<kernels::ExactSum> sums(static_cast<size_t>(rank.threads.threads()));
  const Recess recess(count >= kInlineElements);
  rank.threads.for_range(
      0, count, kBlock, kInlineElements, [&](int thread, uint64_t begin, uint64_t end) {
        alignas(64) std::array<float, kChunk> scratch;
        for (; begin < end; begin += kChunk) {
          const void* const from = values + begin * size_of(dtype);
          kernels::reduce(scratch.data(), false, &from, 1, kernel_type(dtype), 1.0f,
                          std::min(kChunk, end - begin), &sums[static_cast<size_t>(thread)]);
        }
      });
  kernels::ExactSum total;
  for (const auto& each : sums) total.merge(each);
  return total.value();
}

}  // namespace

uint64_t Unit::value_seed(const Flat& flat) const {
  const auto index = static_cast<size_t>(&flat - flats_.data());
  return hash_combine(hash_combine(name_hash_, index), flat.version);
}

// A version without a difference to the one before travels in 16 bits: all later ones build on it.
Codec Unit::codec_of(const Flat& flat) const {
  if (flat.packed) return frozen_codec();
  if (encoding.codec.difference && !flat.difference) return {.kind = CodecKind::bf16};
  return encoding.codec;
}

void Unit::encode_values(Flat& flat, kernels::QuantError* error) {
  const uint64_t size = size_of(flat.desc.dtype);
  const uint64_t seed = value_seed(flat);
  const Wire wire(codec_of(flat), rank_.threads);
  if (flat.packed) {
    wire.encode(flat.encoded, flat.writable + flat.rest.begin * size, flat.desc.dtype,
                flat.rest.size(), seed, {}, nullptr);
    // The memory still has the values before encoding, but gathers read the decoded ones.
    flat.unpacked = false;
    return;
  }
  std::byte* const seen = flat.writable + flat.part.begin * size;
  kernels::QuantError lost;
  wire.encode(flat.encoded, flat.exact, flat.desc.dtype, flat.part.size(), seed, {}, &lost,
              flat.difference ? seen : nullptr);
  wire.decode(seen, flat.desc.dtype, flat.encoded, flat.part.size(), read_by_peers(),
              flat.difference);
  if (encoding.codec.difference) {
    // A difference's error is an error of the values. Infinities and NaN have no difference.
    lost.squares = squares_of(rank_, flat.exact, flat.desc.dtype, flat.part.size());
    if (!std::isfinite(lost.squares)) lost.add_block(std::numeric_limits<double>::infinity(), 0);
  }
  error->merge(lost);
}

// True if the next version may be encoded as its difference to this one. Every rank that holds the
// row must have all of this version, in finite numbers. Ranks of other rows may decide otherwise.
bool Unit::follows() const {
  if (!encoding.codec.difference || arrivals.exchanged != version_) return false;
  for (int i = 0; i < axes_.replica->size(); ++i) {
    const UnitSlot& slot = slots_[axes_.of_replica(i)];
    const uint64_t word =
        slot.value_error[version_ % slot.value_error.size()].load(std::memory_order_seq_cst);
    if (!std::isfinite(std::bit_cast<float>(static_cast<uint32_t>(word)))) return false;
  }
  return true;
}

void Unit::review_value_codec() {
  const double limit = encoding.codec.error_limit;
  // Only a gather by all ranks shows the error of a version to all of them. Without one, some ranks
  // may know it and others not.
  if (limit == 0.0 || !axes_.replicas() || arrivals.exchanged != version_) return;
  if (!error_above(version_, limit, &UnitSlot::value_error)) return;
  encoding.codec = {.kind = CodecKind::bf16};
  rank_.notices.push_back(fmt::format(
      "the values of unit '{}' travel in bf16 from version {} on: the error of {} was above {} "
      "(this rank's: {:.3g}, worst block {:.3g})",
      name_, version_ + 1, name_of(rank_.plan.param.codec.kind), limit, encoding.error,
      encoding.worst));
}

}  // namespace meron

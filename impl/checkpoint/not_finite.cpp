// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/not_finite.h"

#include <algorithm>
#include <cstring>

namespace meron::checkpoint {
namespace {

// An IEEE format: all bits of the exponent are set, and the fraction distinguishes NaN from
// infinity.
template <class Bits>
NotFinite count_bits(const std::byte* data, uint64_t count, Bits exponent, Bits fraction) {
  uint64_t nans = 0, all = 0;
  for (uint64_t i = 0; i < count; ++i) {
    Bits bits = 0;
    std::memcpy(&bits, data + i * sizeof(Bits), sizeof(Bits));
    const bool special = (bits & exponent) == exponent;
    all += special ? 1 : 0;
    nans += special && (bits & fraction) != 0 ? 1 : 0;
  }
  return {nans, all - nans};
}

}  // namespace

NotFinite count_not_finite(std::string_view dtype, const std::byte* data, uint64_t count) {
  if (dtype == "F32") return count_bits<uint32_t>(data, count, 0x7F800000u, 0x007FFFFFu);
  if (dtype == "BF16") return count_bits<uint16_t>(data, count, 0x7F80u, 0x007Fu);
  if (dtype == "F16") return count_bits<uint16_t>(data, count, 0x7C00u, 0x03FFu);
  if (dtype == "F64") {
    return count_bits<uint64_t>(data, count, 0x7FF0000000000000u, 0x000FFFFFFFFFFFFFu);
  }
  if (dtype == "F8_E5M2") return count_bits<uint8_t>(data, count, 0x7Cu, 0x03u);
  // It has no infinities, and one NaN of either sign.
  if (dtype == "F8_E4M3") {
    const auto nans = std::count_if(data, data + count, [](std::byte byte) {
      return (byte & std::byte{0x7F}) == std::byte{0x7F};
    });
    return {static_cast<uint64_t>(nans), 0};
  }
  return {};
}

NotFiniteByTensor::NotFiniteByTensor(const Manifest& manifest)
    : manifest_(manifest), parts_(manifest.files.size()), counts_(manifest.tensors.size()) {
  for (uint32_t t = 0; t < manifest.tensors.size(); ++t) {
    const Tensor& tensor = manifest.tensors[t];
    const uint32_t width = element_bytes(tensor.dtype);
    for (const Piece& piece : tensor.pieces) {
      if (piece.count == 0) continue;
      parts_[piece.file].push_back({piece.offset, piece.offset + piece.count * width, t, width});
    }
  }
  for (auto& parts : parts_) {
    std::sort(parts.begin(), parts.end(),
              [](const Part& a, const Part& b) { return a.begin < b.begin; });
  }
}

void NotFiniteByTensor::take(uint32_t file, uint64_t offset, const std::byte* data,
                             uint64_t bytes) {
  const auto& parts = parts_[file];
  const uint64_t end = offset + bytes;
  if (torn_at_ + torn_.size() != offset) torn_.clear();
  auto part = std::partition_point(parts.begin(), parts.end(),
                                   [&](const Part& each) { return each.end <= offset; });
  for (; part != parts.end() && part->begin < end; ++part) {
    const std::string_view dtype = manifest_.tensors[part->tensor].dtype;
    const auto add = [&](const std::byte* from, uint64_t count) {
      const NotFinite found = count_not_finite(dtype, from, count);
      counts_[part->tensor].nans += found.nans;
      counts_[part->tensor].infinities += found.infinities;
    };
    uint64_t at = std::max(offset, part->begin);
    const uint64_t last = std::min(end, part->end);
    // An element that began before `offset`.
    if (const uint64_t into = (at - part->begin) % part->width; into != 0) {
      const uint64_t rest = std::min<uint64_t>(part->width - into, last - at);
      if (torn_.size() == into) {
        torn_.insert(torn_.end(), data + (at - offset), data + (at - offset + rest));
        if (torn_.size() == part->width) add(torn_.data(), 1);
      }
      at += rest;
    }
    const uint64_t count = (last - at) / part->width;
    add(data + (at - offset), count);
    at += count * part->width;
    if (at == last || last != end) continue;
    torn_.assign(data + (at - offset), data + bytes);
    torn_at_ = at;
    return;
  }
}

}  // namespace meron::checkpoint

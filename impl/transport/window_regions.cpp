// SPDX-License-Identifier: Apache-2.0
#include "transport/window_regions.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/human_bytes.h"
#include "base/layout.h"

namespace meron {
namespace {

Error no_room(std::string_view what, uint64_t bytes, uint64_t left, uint64_t window) {
  return Error(MERON_E_NO_MEMORY,
               fmt::format("{} needs {} of the host's shared window, which has {} left of {}", what,
                           human_bytes(bytes), human_bytes(left), human_bytes(window)),
               "use more ranks or hosts, a smaller model, or raise arena_reserve where the host's "
               "memory allows it");
}

}  // namespace

void WindowRegions::open(uint32_t group) {
  if (group == 0) return;
  // A share of the rest, so that no number of groups uses up the window.
  Region& world = regions_[0];
  const uint64_t bytes = (world.end - world.next) / kShareOfGroup / kPage * kPage;
  world.end -= bytes;
  regions_[group] = {world.end, world.end + bytes};
}

Result<uint64_t> WindowRegions::allocate(uint64_t bytes, std::string_view what, uint32_t group) {
  Region& region = regions_[group];
  // The first range that fits, whatever order ranges were released in.
  for (auto it = region.free.begin(); it != region.free.end(); ++it) {
    const auto [begin, end] = *it;
    if (end - begin < bytes || bytes == 0) continue;
    const uint64_t taken = std::min(end, begin + round_up(bytes, kPage));
    auto rest = region.free.extract(it);
    if (taken < end) {
      rest.key() = taken;
      region.free.insert(std::move(rest));
    }
    return begin;
  }
  const uint64_t left = region.end - region.next;
  if (bytes > left) return no_room(what, bytes, left, window_);
  const uint64_t begin = region.next;
  // Rounding up may pass the region's end, which is then full.
  region.next = std::min(region.end, begin + round_up(bytes, kPage));
  return begin;
}

void WindowRegions::free(uint64_t offset, uint64_t bytes, uint32_t group) {
  Region& region = regions_[group];
  if (bytes == 0) return;
  region.released.emplace_back(offset, std::min(region.end, offset + round_up(bytes, kPage)));
}

void WindowRegions::recycle(uint32_t group) {
  Region& region = regions_[group];
  // One at a time: if memory runs out, the rest are still released, and recycled by the next call.
  for (; !region.released.empty(); region.released.pop_back()) {
    const auto [begin, end] = region.released.back();
    const auto range = region.free.emplace(begin, end).first;
    if (const auto next = std::next(range); next != region.free.end() && next->first == end) {
      range->second = next->second;
      region.free.erase(next);
    }
    if (range == region.free.begin()) continue;
    if (const auto before = std::prev(range); before->second == begin) {
      before->second = range->second;
      region.free.erase(range);
    }
  }
}

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
#include "collective/collective.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "base/held.h"

namespace meron {

Result<bool> BarrierOperation::advance() {
  for (int m = 0; m < channel_.size(); ++m) {
    if (channel_.member(m).posted.load(std::memory_order_seq_cst) < sequence()) return false;
  }
  MERON_TRY(channel_.verify(sequence()));
  return true;
}

std::vector<int> BarrierOperation::missing() const {
  return channel_.below(
      sequence(), [&](int m) { return channel_.member(m).posted.load(std::memory_order_seq_cst); });
}

StagedOperation::StagedOperation(Channel& channel, Deadline deadline, uint64_t chunks)
    : Operation(channel, deadline), chunks_(chunks) {}

const std::byte* StagedOperation::half(int member, uint64_t chunk) const {
  return channel_.member(member).staging[(first_ + chunk) % 2].data();
}

Result<bool> StagedOperation::advance() {
  MemberBlock& own = channel_.own();
  if (!started_) {
    started_ = true;
    first_ = own.staged.load(std::memory_order_relaxed);
  }
  bool moved = false;
  while (combined_ < chunks_) {
    bool step = false;
    if (filled_ < chunks_ && filled_ < combined_ + 2) {
      const uint64_t number = first_ + filled_;  // counted from 0
      bool free = true;
      for (int m = 0; m < channel_.size() && free; ++m) {
        free = channel_.member(m).drained.load(std::memory_order_seq_cst) + 2 > number;
      }
      if (free) {
        std::byte* const half = own.staging[number % 2].data();
        uint64_t filled = 0;
        {
          const Recess recess(chunks_ > 1);
          filled = fill(filled_, half);
        }
        share(filled_, half, filled);
        channel_.announce(own.staged, number + 1);
        ++filled_;
        step = true;
      }
    }
    if (combined_ < filled_) {
      const uint64_t number = first_ + combined_;
      bool there = true;
      for (int m = 0; m < channel_.size() && there; ++m) {
        there = channel_.member(m).staged.load(std::memory_order_seq_cst) > number;
      }
      if (there) {
        {
          const Recess recess(chunks_ > 1);
          combine(combined_);
        }
        channel_.announce(own.drained, number + 1);
        ++combined_;
        step = true;
      }
    }
    if (!step) break;
    moved = true;
  }
  if (moved) channel_.transport().ring();
  return combined_ == chunks_;
}

std::vector<int> StagedOperation::missing() const {
  return channel_.below(first_ + combined_ + 1, [&](int m) {
    return channel_.member(m).staged.load(std::memory_order_seq_cst);
  });
}

BroadcastOperation::BroadcastOperation(Channel& channel, Deadline deadline, std::byte* data,
                                       uint64_t bytes, int root)
    : StagedOperation(channel, deadline, chunks_of(bytes)),
      data_(data),
      bytes_(bytes),
      root_(root) {}

std::string BroadcastOperation::describe() const {
  return fmt::format("broadcast of {} bytes from rank {}", bytes_,
                     channel_.members().world_rank(root_));
}

uint64_t BroadcastOperation::chunk_bytes(uint64_t chunk) const {
  return std::min(kStagingChunk, bytes_ - chunk * kStagingChunk);
}

uint64_t BroadcastOperation::fill(uint64_t chunk, std::byte* half) {
  if (channel_.index() != root_) return 0;
  std::memcpy(half, data_ + chunk * kStagingChunk, chunk_bytes(chunk));
  return chunk_bytes(chunk);
}

void BroadcastOperation::combine(uint64_t chunk) {
  if (channel_.index() == root_) return;
  std::memcpy(data_ + chunk * kStagingChunk, half(root_, chunk), chunk_bytes(chunk));
  add(channel_.counters().collective, chunk_bytes(chunk));
}

AllGatherOperation::AllGatherOperation(Channel& channel, Deadline deadline, const std::byte* own,
                                       uint64_t bytes, std::byte* all)
    : StagedOperation(channel, deadline, chunks_of(bytes)), own_(own), bytes_(bytes), all_(all) {}

uint64_t AllGatherOperation::chunk_bytes(uint64_t chunk) const {
  return std::min(kStagingChunk, bytes_ - chunk * kStagingChunk);
}

uint64_t AllGatherOperation::fill(uint64_t chunk, std::byte* half) {
  std::memcpy(half, own_ + chunk * kStagingChunk, chunk_bytes(chunk));
  return chunk_bytes(chunk);
}

void AllGatherOperation::combine(uint64_t chunk) {
  const uint64_t bytes = chunk_bytes(chunk);
  for (int m = 0; m < channel_.size(); ++m) {
    std::memcpy(all_ + static_cast<uint64_t>(m) * bytes_ + chunk * kStagingChunk, half(m, chunk),
                bytes);
  }
  add(channel_.counters().collective, bytes * static_cast<uint64_t>(channel_.size() - 1));
}

ScatterOperation::ScatterOperation(Channel& channel, Deadline deadline, const std::byte* data,
                                   uint64_t bytes, std::vector<Range> wanted, std::byte* out,
                                   int root)
    : StagedOperation(channel, deadline, chunks_of(bytes)),
      data_(data),
      bytes_(bytes),
      wanted_(std::move(wanted)),
      out_(out),
      root_(root) {}

std::string ScatterOperation::describe() const {
  return fmt::format("scatter of {} bytes from rank {}", bytes_,
                     channel_.members().world_rank(root_));
}

Range ScatterOperation::chunk_range(uint64_t chunk) const {
  return {chunk * kStagingChunk, std::min(bytes_, (chunk + 1) * kStagingChunk)};
}

uint64_t ScatterOperation::fill(uint64_t chunk, std::byte* half) {
  if (channel_.index() != root_) return 0;
  const Range range = chunk_range(chunk);
  std::memcpy(half, data_ + range.begin, range.size());
  return range.size();
}

void ScatterOperation::share(uint64_t chunk, const std::byte* half, uint64_t bytes) {
  if (bytes == 0) return;
  const Range range = chunk_range(chunk);
  // Between two edges the same members want all bytes. Stores are of whole words.
  std::vector<uint64_t> edges = {range.begin, range.end};
  for (const Range& wanted : wanted_) {
    for (const uint64_t edge : {wanted.begin, wanted.end}) {
      if (edge > range.begin && edge < range.end) edges.push_back(edge);
    }
  }
  std::sort(edges.begin(), edges.end());
  for (size_t i = 1; i < edges.size(); ++i) {
    if (edges[i - 1] == edges[i]) continue;
    std::vector<int> members;
    for (int m = 0; m < channel_.size(); ++m) {
      const Range& wanted = wanted_[static_cast<size_t>(m)];
      if (wanted.begin <= edges[i - 1] && wanted.end >= edges[i]) members.push_back(m);
    }
    const uint64_t begin = (edges[i - 1] - range.begin) / 8 * 8;
    channel_.share(half + begin, edges[i] - range.begin - begin, members);
  }
}

void ScatterOperation::combine(uint64_t chunk) {
  const Range range = chunk_range(chunk);
  const Range& own = wanted_[static_cast<size_t>(channel_.index())];
  const uint64_t begin = std::max(range.begin, own.begin), end = std::min(range.end, own.end);
  if (begin >= end) return;
  std::memcpy(out_ + (begin - own.begin), half(root_, chunk) + (begin - range.begin), end - begin);
  if (channel_.index() != root_) add(channel_.counters().collective, end - begin);
}

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
// Collectives on plain memory: barrier, broadcast, all-gather, scatter. Data goes through each
// member's staging halves in its MemberBlock, chunk by chunk: a member fills half k % 2 with chunk
// k once all others have drained chunk k - 2.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/layout.h"
#include "call_log/channel.h"
#include "collective/operation.h"

namespace meron {

// Ends when every member has begun it: its sequence number is posted by all.
class BarrierOperation final : public Operation {
 public:
  using Operation::Operation;
  Result<bool> advance() override;
  std::vector<int> missing() const override;
  std::string describe() const override { return "barrier"; }
};

// Walks the chunks of an array through the staging halves. The derived class combines the chunks of
// peers.
class StagedOperation : public Operation {
 public:
  static constexpr uint64_t chunks_of(uint64_t bytes) {
    return (bytes + kStagingChunk - 1) / kStagingChunk;
  }
  StagedOperation(Channel& channel, Deadline deadline, uint64_t chunks);
  Result<bool> advance() final;
  std::vector<int> missing() const final;
  bool staged() const final { return true; }

 protected:
  // Copies chunk k of this rank into `half`, if this rank contributes; returns how many bytes.
  virtual uint64_t fill(uint64_t chunk, std::byte* half) = 0;
  // Combines chunk k from the members' halves.
  virtual void combine(uint64_t chunk) = 0;
  // Lets peers see what fill() put into `half`.
  virtual void share(uint64_t /*chunk*/, const std::byte* half, uint64_t bytes) {
    channel_.share(half, bytes);
  }
  const std::byte* half(int member, uint64_t chunk) const;

 private:
  uint64_t chunks_;
  uint64_t filled_ = 0;
  uint64_t combined_ = 0;
  uint64_t first_ = 0;  // number of this operation's first chunk in the channel's count
  bool started_ = false;
};

class BroadcastOperation final : public StagedOperation {
 public:
  BroadcastOperation(Channel& channel, Deadline deadline, std::byte* data, uint64_t bytes,
                     int root);
  std::string describe() const override;

 private:
  uint64_t fill(uint64_t chunk, std::byte* half) override;
  void combine(uint64_t chunk) override;
  uint64_t chunk_bytes(uint64_t chunk) const;

  std::byte* data_;
  uint64_t bytes_;
  int root_;
};

// Collects each member's `bytes` bytes, in the order of members, on all.
class AllGatherOperation final : public StagedOperation {
 public:
  AllGatherOperation(Channel& channel, Deadline deadline, const std::byte* own, uint64_t bytes,
                     std::byte* all);
  std::string describe() const override { return "all_gather"; }

 private:
  uint64_t fill(uint64_t chunk, std::byte* half) override;
  void combine(uint64_t chunk) override;
  uint64_t chunk_bytes(uint64_t chunk) const;

  const std::byte* own_;
  uint64_t bytes_;
  std::byte* all_;
};

// Sends each member its range of the root's `bytes` bytes.
class ScatterOperation final : public StagedOperation {
 public:
  // `data`: the root's alone. `wanted`: by member, the same on all. `out`: this member's range.
  ScatterOperation(Channel& channel, Deadline deadline, const std::byte* data, uint64_t bytes,
                   std::vector<Range> wanted, std::byte* out, int root);
  std::string describe() const override;

 private:
  uint64_t fill(uint64_t chunk, std::byte* half) override;
  void combine(uint64_t chunk) override;
  void share(uint64_t chunk, const std::byte* half, uint64_t bytes) override;
  Range chunk_range(uint64_t chunk) const;

  const std::byte* data_;
  uint64_t bytes_;
  std::vector<Range> wanted_;
  std::byte* out_;
  int root_;
};

}  // namespace meron

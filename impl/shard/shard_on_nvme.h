// SPDX-License-Identifier: Apache-2.0
// Values on tier nvme. Memory has a checksum of every 64 KiB: values from the drive are compared
// before they are used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "io/storage.h"
#include "rank/rank.h"
#include "shard/shard.h"

namespace meron {

class ShardOnNvme final : public Shard {
 public:
  // Allocates room in the file for the `bytes` bytes that are at `data` while they are in memory; a
  // transfer under way uses that memory. `phase`: value_phase() of them. They are zero until they
  // are first stored. Errors: those of Rank::open_storage and SwapFile::allocate.
  static Result<std::unique_ptr<Shard>> create(Rank& rank, std::byte* data, uint64_t bytes,
                                               uint64_t phase, std::string name);

  Result<bool> stage() override;
  Result<bool> open(bool whole) override;
  void store() override;
  void give_back() override;
  void forget() override;
  Status read(uint64_t offset, uint64_t bytes, std::byte* out) override;
  bool busy() const override { return transfer_ != nullptr && !transfer_->done(); }
  void wait(int64_t timeout_ns) const override;
  std::string describe() const override;

 private:
  ShardOnNvme(Rank& rank, std::byte* data, uint64_t bytes, std::string name);
  // Takes note of a transfer that has ended.
  Status settle();
  void begin_read();
  Status verify();
  // MERON_E_CORRUPT where these are not the bytes of the block that were stored.
  Status check_block(uint64_t block, const std::byte* data, uint64_t bytes) const;
  template <class Body>
  void for_blocks(Body body);

  Rank& rank_;
  std::byte* const data_;
  const uint64_t bytes_;
  const std::string name_;  // for errors
  Extent extent_;
  uint64_t offset_ = 0;  // of the values, in the file
  std::vector<uint32_t> checksums_;
  std::shared_ptr<IoTicket> transfer_;
  bool writing_ = false;  // what transfer_ does
  bool stored_ = false;   // the file has them
  bool here_ = false;     // the memory does
  std::optional<Error> error_;
  std::vector<std::vector<std::byte>> lost_;  // that a silent drive may still write to
};

}  // namespace meron

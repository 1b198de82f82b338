// SPDX-License-Identifier: Apache-2.0
#include "shard/shard_on_nvme.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/layout.h"
#include "io/drive_error.h"
#include "kernels/cpu/crc32c.h"

namespace meron {
namespace {

constexpr uint64_t kChecked = 64 << 10;  // bytes of a checksum
// Fewer are not worth waking a thread for.
constexpr uint64_t kInlineBlocks = 64;

}  // namespace

ShardOnNvme::ShardOnNvme(Rank& rank, std::byte* data, uint64_t bytes, std::string name)
    : rank_(rank),
      data_(data),
      bytes_(bytes),
      name_(std::move(name)),
      checksums_((bytes + kChecked - 1) / kChecked) {}

Result<std::unique_ptr<Shard>> ShardOnNvme::create(Rank& rank, std::byte* data, uint64_t bytes,
                                                   uint64_t phase, std::string name) {
  std::unique_ptr<ShardOnNvme> values(new ShardOnNvme(rank, data, bytes, std::move(name)));
  if (bytes == 0) return std::unique_ptr<Shard>(std::move(values));
  MERON_ASSIGN(Storage* const storage, rank.open_storage());
  const auto allocate = [&] {
    const Recess recess;  // the file may have to grow
    return storage->swap().allocate(phase + bytes, rank.deadline());
  };
  MERON_ASSIGN(values->extent_, allocate());
  values->offset_ = values->extent_.offset + phase;
  add(rank.counters.nvme.held, values->extent_.bytes);
  return std::unique_ptr<Shard>(std::move(values));
}

void ShardOnNvme::give_back() {
  if (bytes_ == 0) return;
  rank_.drive.storage->swap().free(extent_);
  rank_.counters.nvme.held.fetch_sub(extent_.bytes);
}

Status ShardOnNvme::settle() {
  if (error_) return *error_;
  if (!transfer_ || !transfer_->done()) return Ok{};
  Status ended = std::exchange(transfer_, nullptr)->status();
  if (ended.ok() && !writing_) ended = verify();
  if (!ended.ok()) {
    error_ = std::move(ended).error();
    return *error_;
  }
  (writing_ ? stored_ : here_) = true;
  return Ok{};
}

void ShardOnNvme::begin_read() {
  transfer_ =
      rank_.drive.storage->engine().read(rank_.drive.storage->file(), offset_, data_, bytes_);
  writing_ = false;
  add(rank_.counters.nvme.read, bytes_);
}

Result<bool> ShardOnNvme::stage() {
  MERON_TRY(settle());
  if (here_ || bytes_ == 0) return true;
  if (transfer_) return false;
  if (!stored_) {
    const Recess recess(bytes_ >= kLongBytes);
    std::fill_n(data_, bytes_, std::byte{0});
    here_ = true;
    return true;
  }
  begin_read();
  MERON_TRY(settle());
  return here_;
}

Result<bool> ShardOnNvme::open(bool whole) {
  MERON_TRY(settle());
  // It may have ended since, with an error that settle() has not seen.
  if (transfer_) return false;
  if (!whole) return stage();
  here_ = true;
  return true;
}

void ShardOnNvme::forget() {
  here_ = false;
  // Unverified values are lost with the memory.
  if (transfer_ && !writing_) transfer_.reset();
}

Status ShardOnNvme::read(uint64_t offset, uint64_t bytes, std::byte* out) {
  if (error_) return *error_;
  // Only writes: a read that has ended belongs to the operation that began it. Settling one here
  // would release the lock, to verify, while the unit does not know that its memory is in use.
  while (transfer_ && writing_) {
    if (const std::shared_ptr<IoTicket> write = transfer_; !write->done()) {
      const Recess recess;
      if (!write->wait(rank_.timeout_ns)) {
        return drive_silent_error(rank_.drive.storage->path(), rank_.timeout_ns);
      }
    }
    // Another thread may have taken note of it meanwhile, and begun another transfer.
    if (transfer_ && writing_) MERON_TRY(settle());
  }
  if (error_) return *error_;
  const Recess recess;  // nothing is stored there meanwhile
  if (bytes == 0) return Ok{};
  if (!stored_) {
    std::fill_n(out, bytes, std::byte{0});
    return Ok{};
  }
  // Whole blocks, for their checksums.
  const uint64_t begin = offset / kChecked * kChecked;
  const uint64_t end = std::min(bytes_, round_up(offset + bytes, kChecked));
  std::vector<std::byte> room(end - begin);
  const auto ticket = rank_.drive.storage->engine().read(rank_.drive.storage->file(),
                                                         offset_ + begin, room.data(), room.size());
  if (!ticket->wait(rank_.timeout_ns)) {
    lost_.push_back(std::move(room));
    return drive_silent_error(rank_.drive.storage->path(), rank_.timeout_ns);
  }
  MERON_TRY(ticket->status());
  add(rank_.counters.nvme.read, room.size());
  for (uint64_t at = begin; at < end; at += kChecked) {
    MERON_TRY(check_block(at / kChecked, room.data() + (at - begin), std::min(kChecked, end - at)));
  }
  std::copy_n(room.data() + (offset - begin), bytes, out);
  return Ok{};
}

Status ShardOnNvme::check_block(uint64_t block, const std::byte* data, uint64_t bytes) const {
  const uint32_t found = kernels::crc32c(data, bytes);
  if (found == checksums_[block]) return Ok{};
  return drive_changed_error(rank_.drive.storage->path(),
                             {.offset = offset_ + block * kChecked,
                              .bytes = bytes,
                              .found = found,
                              .expected = checksums_[block]},
                             name_, fmt::format("of {}", name_));
}

void ShardOnNvme::store() {
  if (bytes_ == 0) return;
  for_blocks([&](uint64_t block, const std::byte* data, uint64_t bytes) {
    checksums_[block] = kernels::crc32c(data, bytes);
  });
  transfer_ =
      rank_.drive.storage->engine().write(rank_.drive.storage->file(), offset_, data_, bytes_);
  writing_ = true;
  add(rank_.counters.nvme.written, bytes_);
}

template <class Body>
void ShardOnNvme::for_blocks(Body body) {
  const Recess recess(checksums_.size() >= kInlineBlocks);
  rank_.threads.for_range(0, checksums_.size(), 1, kInlineBlocks,
                          [&](int, uint64_t begin, uint64_t end) {
                            for (uint64_t block = begin; block < end; ++block) {
                              const uint64_t at = block * kChecked;
                              body(block, data_ + at, std::min(kChecked, bytes_ - at));
                            }
                          });
}

Status ShardOnNvme::verify() {
  std::atomic<uint64_t> bad{UINT64_MAX};
  for_blocks([&](uint64_t block, const std::byte* data, uint64_t bytes) {
    if (kernels::crc32c(data, bytes) != checksums_[block]) bad.store(block);
  });
  if (bad == UINT64_MAX) return Ok{};
  const uint64_t at = bad * kChecked;
  return check_block(bad, data_ + at, std::min(kChecked, bytes_ - at));
}

void ShardOnNvme::wait(int64_t timeout_ns) const {
  if (transfer_) transfer_->wait(timeout_ns);
}

std::string ShardOnNvme::describe() const {
  return fmt::format("a {} of {} is under way", writing_ ? "write" : "read",
                     rank_.drive.storage->path());
}

}  // namespace meron

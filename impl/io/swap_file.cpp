// SPDX-License-Identifier: Apache-2.0
#include "io/swap_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/layout.h"
#include "kernels/cpu/crc32c.h"
#include "os/memory_file.h"

namespace meron {
namespace {

constexpr uint64_t kZeroBytes = 4 << 20;  // of one write
constexpr size_t kWritesUnderWay = 8;
constexpr uint64_t kMaxSwap = 1ull << 62;

}  // namespace

Result<std::shared_ptr<SwapFile>> SwapFile::create(const std::shared_ptr<IoEngine>& engine,
                                                   const std::string& directory,
                                                   const SwapOptions& options) {
  MERON_ASSIGN(DirectFile made, DirectFile::create(directory, options.expected));
  MERON_ASSIGN(std::shared_ptr<IoFile> file, engine->add(std::move(made)));
  return std::shared_ptr<SwapFile>(new SwapFile(engine, std::move(file), options.prewrite));
}

SwapFile::SwapFile(std::shared_ptr<IoEngine> engine, std::shared_ptr<IoFile> file, bool prewrite)
    : engine_(std::move(engine)), file_(std::move(file)), prewrite_(prewrite) {}

Result<Extent> SwapFile::allocate(uint64_t bytes, Deadline deadline) {
  if (bytes == 0) return Extent{};
  if (bytes > kMaxSwap) {
    return Error(MERON_E_ARGUMENT, fmt::format("{} bytes of swap", bytes)).on(file_->path());
  }
  const uint64_t need = round_up(bytes, kSwapBlock);
  const std::lock_guard lock(mutex_);
  const auto fits = [&](const auto& range) { return range.second >= need; };
  auto found = std::find_if(free_.begin(), free_.end(), fits);
  if (found == free_.end()) {
    // Free space at the end of the file is part of the new extent.
    uint64_t missing = need;
    if (!free_.empty()) {
      const auto& [offset, length] = *free_.rbegin();
      if (offset + length == size_) missing -= length;
    }
    MERON_TRY(grow(missing, deadline));
    found = std::prev(free_.end());
  }
  const auto [offset, length] = *found;
  free_.erase(found);
  if (length > need) free_.emplace(offset + need, length - need);
  allocated_ += need;
  return Extent{.offset = offset, .bytes = bytes};
}

void SwapFile::free(const Extent& extent) {
  if (extent.bytes == 0) return;
  const uint64_t length = round_up(extent.bytes, kSwapBlock);
  {
    const std::shared_lock lock(table_mutex_);
    const auto first = checksums_.begin() + static_cast<ptrdiff_t>(extent.offset / kSwapBlock);
    std::fill(first, first + static_cast<ptrdiff_t>(length / kSwapBlock), Checksum{});
  }
  const std::lock_guard lock(mutex_);
  allocated_ -= length;
  add_free(extent.offset, length);
}

void SwapFile::add_free(uint64_t offset, uint64_t bytes) {
  const auto after = free_.lower_bound(offset);
  if (after != free_.end() && after->first == offset + bytes) {
    bytes += after->second;
    free_.erase(after);
  }
  if (auto before = free_.lower_bound(offset); before != free_.begin()) {
    --before;
    if (before->first + before->second == offset) {
      before->second += bytes;
      return;
    }
  }
  free_.emplace(offset, bytes);
}

Status SwapFile::grow(uint64_t bytes, Deadline deadline) {
  MERON_TRY(file_->file().reserve(size_, bytes));
  // A failure from here on leaves room behind the file's end as it counts here, which the next
  // growth takes.
  if (prewrite_) MERON_TRY(write_zeros(size_, bytes, deadline));
  {
    const std::unique_lock lock(table_mutex_);
    checksums_.resize((size_ + bytes) / kSwapBlock);
  }
  add_free(size_, bytes);
  size_ += bytes;
  return Ok{};
}

Status SwapFile::write_zeros(uint64_t offset, uint64_t bytes, Deadline deadline) {
  // Writes of an earlier growth that failed or timed out may still be under way.
  MERON_TRY(wait_for_zeros(0, false, deadline));
  if (!zeros_.valid()) {
    // Pages of a new memory file are zero, and aligned.
    MERON_ASSIGN(const MemoryFile memory, MemoryFile::create("meron-zeros", kZeroBytes));
    MERON_ASSIGN(zeros_, Mapping::map_file(memory.fd(), kZeroBytes, Access::read_write));
  }
  MERON_TRY(zeros_.populate(0, kZeroBytes));
  for (uint64_t done = 0; done < bytes;) {
    const uint64_t piece = std::min(bytes - done, kZeroBytes);
    zero_writes_.push_back(engine_->write(file_, offset + done, zeros_.data(), piece));
    done += piece;
    MERON_TRY(wait_for_zeros(kWritesUnderWay, true, deadline));
  }
  MERON_TRY(wait_for_zeros(0, true, deadline));
  return zeros_.discard(0, kZeroBytes);
}

Status SwapFile::wait_for_zeros(size_t most_left, bool count_errors, Deadline deadline) {
  while (zero_writes_.size() > most_left) {
    const std::shared_ptr<IoTicket> ticket = zero_writes_.front();
    if (!ticket->wait(deadline.is_never() ? -1 : deadline.remaining())) {
      return Error(MERON_E_TIMEOUT, "the disk did not take the zeros of new swap in time",
                   "allow more time, or name a directory on a faster disk")
          .on(file_->path());
    }
    zero_writes_.pop_front();
    if (count_errors) MERON_TRY(ticket->status());
  }
  return Ok{};
}

void SwapFile::seal(uint64_t offset, const std::byte* data, uint64_t bytes) {
  const std::shared_lock lock(table_mutex_);
  for (uint64_t at = 0; at < bytes; at += kSwapBlock) {
    const uint64_t length = std::min(bytes - at, kSwapBlock);
    checksums_[(offset + at) / kSwapBlock] = {.crc = kernels::crc32c(data + at, length),
                                              .bytes = static_cast<uint32_t>(length)};
  }
}

Status SwapFile::verify(uint64_t offset, const std::byte* data, uint64_t bytes) const {
  const std::shared_lock lock(table_mutex_);
  for (uint64_t at = 0; at < bytes; at += kSwapBlock) {
    MERON_TRY(check_block(offset + at, data + at, std::min(bytes - at, kSwapBlock)));
  }
  return Ok{};
}

Status SwapFile::check_block(uint64_t offset, const std::byte* data, uint64_t bytes) const {
  const uint64_t block = offset / kSwapBlock;
  const auto bad = [&](meron_status code, const std::string& why, const char* advice) {
    return Error(code, fmt::format("block {} (at offset {}) {}", block, offset, why), advice)
        .on(file_->path());
  };
  const Checksum& sealed = checksums_[block];
  if (sealed.bytes != bytes) {
    return bad(MERON_E_INTERNAL,
               fmt::format("was written with {} bytes, and {} were read", sealed.bytes, bytes),
               "this is a defect of Meron: please report it");
  }
  const uint32_t found = kernels::crc32c(data, bytes);
  if (found == sealed.crc) return Ok{};
  return bad(MERON_E_CORRUPT,
             fmt::format("is not what was written: its checksum is {:08x} instead of {:08x}", found,
                         sealed.crc),
             "the disk, its cable or memory is at fault: go back to the last checkpoint, on "
             "another disk");
}

uint64_t SwapFile::size() const {
  const std::lock_guard lock(mutex_);
  return size_;
}

uint64_t SwapFile::allocated() const {
  const std::lock_guard lock(mutex_);
  return allocated_;
}

}  // namespace meron

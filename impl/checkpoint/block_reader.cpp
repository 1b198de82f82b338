// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/block_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/layout.h"
#include "kernels/cpu/crc32c.h"

namespace meron::checkpoint {
namespace {

constexpr size_t kAnnounced = 32;  // reads, from the first that was not begun

Status check_checksums(const File& file, uint64_t block_bytes, const std::string& path) {
  const uint64_t blocks = blocks_of(file.bytes, block_bytes);
  if (file.crc.size() == blocks) return Ok{};
  return Error(MERON_E_CORRUPT,
               fmt::format("the manifest has {} checksums for the file's {} blocks",
                           file.crc.size(), blocks),
               "load another checkpoint")
      .on(path);
}

}  // namespace

BlockReader::BlockReader(std::shared_ptr<Staging> staging, const std::string& directory,
                         std::span<const File> files, std::vector<WantedRange> ranges,
                         const ReaderOptions& options)
    : staging_(std::move(staging)),
      files_(files),
      ranges_(std::move(ranges)),
      options_(options),
      open_files_(staging_->engine(), {directory, options.links, options.held}, files) {}

Result<std::unique_ptr<BlockReader>> BlockReader::create(std::shared_ptr<Staging> staging,
                                                         const std::string& directory,
                                                         std::span<const File> files,
                                                         std::vector<WantedRange> ranges,
                                                         const ReaderOptions& options) {
  if (options.block_bytes == 0 || options.block_bytes > staging->block_bytes()) {
    return Error(MERON_E_ARGUMENT,
                 fmt::format("blocks of {} bytes do not fit into staging of {} bytes each",
                             options.block_bytes, staging->block_bytes()))
        .on(directory);
  }
  std::unique_ptr<BlockReader> reader(
      new BlockReader(std::move(staging), directory, files, std::move(ranges), options));
  // Sizes first: nothing is allocated by a size in the manifest that the file does not have.
  std::vector<bool> checked(files.size());
  for (const WantedRange& range : reader->ranges_) {
    if (range.file >= files.size() || range.bytes == 0 || checked[range.file]) continue;
    checked[range.file] = true;
    MERON_TRY(reader->open_files_.check(range.file));
    if (!options.verify) continue;
    MERON_TRY(check_checksums(files[range.file], options.block_bytes,
                              reader->open_files_.path(range.file)));
  }
  MERON_ASSIGN(reader->reads_, plan_reads(files, reader->ranges_,
                                          {.block_bytes = options.block_bytes,
                                           .read_bytes = reader->staging_->block_bytes(),
                                           .whole_blocks = options.verify}));
  for (PlannedRead& read : reader->reads_) {
    const BlockPlace first{read.file, read.offset / options.block_bytes};
    const auto at = std::lower_bound(options.shared.begin(), options.shared.end(), first);
    read.shared = read.shared || (at != options.shared.end() && at->file == read.file &&
                                  at->block * options.block_bytes < read.offset + read.bytes);
  }
  return reader;
}

Result<std::span<const std::byte>> BlockReader::next() {
  if (failed_) return *failed_;
  auto piece = next_piece();
  if (!piece.ok()) failed_ = piece.error();
  return piece;
}

Result<std::span<const std::byte>> BlockReader::next_piece() {
  if (cancelled_.load(std::memory_order_relaxed)) {
    return Error(MERON_E_CANCELLED, "the reading was cancelled");
  }
  if (range_ == ranges_.size()) {
    return Error(MERON_E_STATE, "all ranges were read",
                 "this is a defect of Meron: please report it");
  }
  const WantedRange& range = ranges_[range_];
  if (position_ == range.bytes) {
    ++range_;
    position_ = 0;
    return std::span<const std::byte>();
  }
  const uint64_t at = range.offset + position_;
  if (!slots_.empty() && !slots_.front().read.covers(range.file, at)) pop_front();
  MERON_TRY(read_ahead());
  if (slots_.empty() || !slots_.front().read.covers(range.file, at)) {
    return Error(MERON_E_INTERNAL, fmt::format("no read was planned for offset {}", at))
        .on(open_files_.path(range.file));
  }
  MERON_TRY(await_front());
  Slot& front = slots_.front();
  const uint64_t past = at - front.read.offset;
  uint64_t bytes = std::min(range.bytes - position_, front.read.bytes - past);
  if (options_.verify) {
    MERON_TRY(verify(&front, at));
    // No further than that block, so that the caller finds the bytes in the processor's cache.
    bytes = std::min(bytes, front.verified - past);
  }
  position_ += bytes;
  return std::span<const std::byte>(front_data() + past, bytes);
}

const std::byte* BlockReader::front_data() const {
  const Slot& front = slots_.front();
  return front.read.repeat ? kept_.at(front.read.file).data() : front.block.data;
}

void BlockReader::pop_front() {
  const PlannedRead& read = slots_.front().read;
  if (!read.keep) {
    if (read.repeat) kept_.erase(read.file);
  } else if (!read.repeat) {
    const std::byte* const data = front_data();
    kept_[read.file].assign(data, data + read.bytes);
  }
  slots_.pop_front();
}

Status BlockReader::announce() {
  const size_t end = std::min(reads_.size(), begun_ + kAnnounced);
  for (announced_ = std::max(announced_, begun_); announced_ < end; ++announced_) {
    const PlannedRead& read = reads_[announced_];
    if (!read.shared || read.repeat) continue;
    MERON_ASSIGN(const auto file, open_files_.get(read.file, true));
    file->file().will_need(read.offset, read.bytes);
  }
  return Ok{};
}

Status BlockReader::read_ahead() {
  MERON_TRY(announce());
  while (begun_ < reads_.size() && slots_.size() < staging_->blocks()) {
    if (reads_[begun_].repeat) {
      slots_.push_back(
          {.read = reads_[begun_], .block = {}, .arrived = true, .verified = reads_[begun_].bytes});
      ++begun_;
      continue;
    }
    Slot slot{.read = reads_[begun_], .block = staging_->next()};
    if (const auto& last = staging_->transfer(slot.block)) {
      MERON_TRY(wait_for(*last, open_files_.path(slot.read.file), options_.timeout_ns, cancelled_));
    }
    MERON_ASSIGN(slot.file, open_files_.get(slot.read.file, slot.read.shared));
    slot.ticket =
        staging_->engine().read(slot.file, slot.read.offset, slot.block.data, slot.read.bytes);
    staging_->keep(slot.block, slot.ticket);
    slots_.push_back(std::move(slot));
    ++begun_;
  }
  return Ok{};
}

Status BlockReader::await_front() {
  Slot& front = slots_.front();
  if (front.arrived) return Ok{};
  MERON_TRY(wait_for(*front.ticket, front.file->path(), options_.timeout_ns, cancelled_));
  if (Status ended = front.ticket->status(); !ended.ok()) {
    const auto size = front.file->file().size();
    if (!size.ok() || *size >= front.read.offset + front.read.bytes) return ended;
    return Error(MERON_E_CORRUPT,
                 fmt::format("the file was cut to {} bytes while it was read, and by the manifest "
                             "it has {}",
                             *size, files_[front.read.file].bytes),
                 "copy it anew, or load another checkpoint")
        .on(front.file->path());
  }
  read_.fetch_add(front.read.bytes, std::memory_order_relaxed);
  front.arrived = true;
  return Ok{};
}

Status BlockReader::verify(Slot* slot, uint64_t at) const {
  const PlannedRead& read = slot->read;
  while (read.offset + slot->verified <= at) {
    const uint64_t offset = read.offset + slot->verified;
    const uint64_t bytes = std::min(options_.block_bytes, read.bytes - slot->verified);
    const uint32_t found = kernels::crc32c(slot->block.data + slot->verified, bytes);
    const uint32_t expected = files_[read.file].crc[offset / options_.block_bytes];
    if (found != expected) {
      return Error(MERON_E_CORRUPT,
                   fmt::format("the block of {} bytes at offset {} is not what was saved: its "
                               "CRC-32C is {:08x}, not {:08x}",
                               bytes, offset, found, expected),
                   "the drive or a copy has changed it: copy the file anew, or load another "
                   "checkpoint")
          .on(open_files_.path(read.file));
    }
    slot->verified += bytes;
  }
  return Ok{};
}

}  // namespace meron::checkpoint

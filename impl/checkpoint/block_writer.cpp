// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/block_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/human_bytes.h"
#include "checkpoint/file_steps.h"
#include "io/drive_error.h"
#include "io/kill_point.h"
#include "os/file.h"

namespace meron::checkpoint {
namespace {

Status take_room(const DirectFile& file, uint64_t bytes) {
  // Asked first: a disk that lacks the room would be full for a moment, which others would notice.
  const uint64_t free = file.free_bytes();
  if (free != 0 && free < bytes) {
    return Error(MERON_E_NO_SPACE,
                 fmt::format("the file system has {} free, and {} are needed", human_bytes(free),
                             human_bytes(bytes)),
                 "free some space, or save to another disk")
        .on(file.path());
  }
  kill_point("fallocate");
  return file.reserve(0, bytes);
}

}  // namespace

Result<std::unique_ptr<BlockWriter>> BlockWriter::create(std::shared_ptr<Staging> staging,
                                                         const std::string& path,
                                                         const WriterOptions& options) {
  if (options.block_bytes == 0) {
    return Error(MERON_E_ARGUMENT, "checksums of blocks of 0 bytes", "choose 1 MiB").on(path);
  }
  std::unique_ptr<BlockWriter> writer(new BlockWriter(std::move(staging), path, options));
  MERON_ASSIGN(UniqueFd fd, create_file_step(path));
  auto file = DirectFile::adopt(std::move(fd), path, FileUse::write);
  Status made = Ok{};
  if (file.ok()) {
    made = take_room(*file, options.total_bytes);
    if (made.ok()) {
      auto added = writer->staging_->engine().add(std::move(file).value());
      if (added.ok()) {
        writer->file_ = std::move(added).value();
        return writer;
      }
      made = std::move(added).error();
    }
  } else {
    made = std::move(file).error();
  }
  // Files that will not be used must not fill the disk.
  (void)remove_file(path).ok();
  return std::move(made).error();
}

Result<std::span<std::byte>> BlockWriter::space(uint64_t max) {
  MERON_TRY(check_usable());
  const uint64_t left = options_.total_bytes - submitted_ - filled_;
  if (left == 0 || max == 0) {
    return settle(Error(MERON_E_ARGUMENT,
                        left == 0 ? fmt::format("the file has all its {} bytes already",
                                                options_.total_bytes)
                                  : "room for 0 bytes",
                        "this is a defect of Meron: please report it")
                      .on(path_))
        .error();
  }
  if (!block_) {
    const Status taken = settle(take_block());
    if (!taken.ok()) return taken.error();
  }
  const uint64_t room = std::min({max, left, staging_->block_bytes() - filled_});
  return std::span(block_->data + filled_, room);
}

Status BlockWriter::commit(uint64_t bytes) {
  MERON_TRY(check_usable());
  const uint64_t left = options_.total_bytes - submitted_ - filled_;
  if (bytes > left || (bytes != 0 && (!block_ || bytes > staging_->block_bytes() - filled_))) {
    return settle(Error(MERON_E_ARGUMENT, fmt::format("{} bytes were given no room", bytes),
                        "this is a defect of Meron: please report it")
                      .on(path_));
  }
  filled_ += bytes;
  // The last one too: what has no transfer yet, another writer would overwrite.
  const bool complete = submitted_ + filled_ == options_.total_bytes;
  if (block_ && filled_ != 0 && (complete || filled_ == staging_->block_bytes())) write_block();
  return settle(collect());
}

Result<std::vector<uint32_t>> BlockWriter::finish() {
  return finish(options_.timeout_ns);
}

Result<std::vector<uint32_t>> BlockWriter::finish(int64_t timeout_ns) {
  MERON_TRY(check_usable());
  const Status finished = settle(finish_all(timeout_ns));
  if (!finished.ok()) return finished.error();
  file_.reset();
  return checksums_.take();
}

Status BlockWriter::finish_all(int64_t timeout_ns) {
  if (submitted_ + filled_ != options_.total_bytes) {
    return Error(MERON_E_STATE,
                 fmt::format("{} of {} bytes were given to the file", submitted_ + filled_,
                             options_.total_bytes),
                 "this is a defect of Meron: please report it")
        .on(path_);
  }
  if (filled_ != 0) write_block();
  while (!under_way_.empty()) {
    MERON_TRY(wait_for(*under_way_.front().ticket, path_, timeout_ns, cancelled()));
    MERON_TRY(collect());
  }
  return sync_file_step(file_->file().buffered_fd(), path_);
}

Status BlockWriter::check_usable() {
  if (failed_) return *failed_;
  if (!file_) return Error(MERON_E_STATE, "the file is finished").on(path_);
  if (!cancelled().load(std::memory_order_relaxed)) return Ok{};
  return settle(Error(MERON_E_CANCELLED, "the work on the file was cancelled").on(path_));
}

Status BlockWriter::settle(Status status) {
  if (!status.ok() && !failed_) failed_ = status.error();
  return status;
}

Status BlockWriter::take_block() {
  const Staging::Block block = staging_->next();
  if (const auto& last = staging_->transfer(block)) {
    MERON_TRY(wait_for(*last, path_, options_.timeout_ns, cancelled()));
  }
  MERON_TRY(collect());
  block_ = block;
  filled_ = 0;
  return Ok{};
}

void BlockWriter::write_block() {
  checksums_.add(block_->data, filled_);
  kill_point("write");
  auto ticket = staging_->engine().write(file_, submitted_, block_->data, filled_);
  staging_->keep(*block_, ticket);
  under_way_.push_back({.ticket = std::move(ticket), .bytes = filled_});
  submitted_ += filled_;
  filled_ = 0;
  block_.reset();
}

// All are checked, so that a failure is noticed while an earlier write still waits for the drive.
// Each is looked at once: what ended between two looks would be taken off without its status.
Status BlockWriter::collect() {
  size_t ended = 0;  // of the first
  for (size_t i = 0; i < under_way_.size(); ++i) {
    const Write& write = under_way_[i];
    if (!write.ticket->done()) continue;
    MERON_TRY(write.ticket->status());
    if (ended == i) ++ended;
  }
  for (; ended != 0; --ended) {
    written_.fetch_add(under_way_.front().bytes, std::memory_order_relaxed);
    under_way_.pop_front();
  }
  return Ok{};
}

}  // namespace meron::checkpoint

// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/read_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <optional>

#include "base/layout.h"

namespace meron::checkpoint {
namespace {

constexpr uint64_t kReadPage = 4096;
constexpr uint64_t kReadGap = 64 << 10;  // reading such a gap takes less than another request

Status check_range(std::span<const File> files, const WantedRange& range) {
  if (range.file >= files.size()) {
    return Error(MERON_E_ARGUMENT,
                 fmt::format("file {} of {} is wanted", range.file, files.size()));
  }
  const File& file = files[range.file];
  if (range.offset <= file.bytes && range.bytes <= file.bytes - range.offset) return Ok{};
  return Error(MERON_E_ARGUMENT, fmt::format("{} bytes at offset {} are wanted of {}", range.bytes,
                                             range.offset, file.bytes))
      .on(file.name);
}

// True if one read of the block can also serve `at`, which is behind it.
bool may_extend(const PlannedRead& read, const WantedRange& range, uint64_t at, uint64_t block) {
  return read.file == range.file && at / block == read.offset / block && at >= read.offset &&
         at <= read.offset + read.bytes + kReadGap;
}

// The last read of each of the files that were read last.
class LastReads {
 public:
  // The number of a read of the same bytes, if it is the last one of its file.
  std::optional<size_t> find(std::span<const PlannedRead> reads, const PlannedRead& read) const {
    for (const size_t number : numbers_) {
      const PlannedRead& last = reads[number];
      if (last.file != read.file) continue;
      const bool same = last.offset == read.offset && last.bytes == read.bytes;
      return same ? std::optional(number) : std::nullopt;
    }
    return std::nullopt;
  }
  void add(std::span<const PlannedRead> reads) {
    const size_t number = reads.size() - 1;
    std::erase_if(numbers_, [&](size_t each) { return reads[each].file == reads[number].file; });
    if (numbers_.size() == kKeptFiles) numbers_.pop_back();
    numbers_.push_front(number);
  }

 private:
  std::deque<size_t> numbers_;  // the front was used last
};

// Goes through the ranges. A run is what ranges that follow one another want in one piece.
class Planner {
 public:
  Planner(std::span<const File> files, std::span<const WantedRange> ranges, const ReadSizes& sizes)
      : files_(files), ranges_(ranges), sizes_(sizes) {}

  Result<std::vector<PlannedRead>> run() && {
    for (const WantedRange& range : ranges_) MERON_TRY(check_range(files_, range));
    for (size_t i = 0; i < ranges_.size(); ++i) {
      const WantedRange& range = ranges_[i];
      if (i == 0 || !follows(i)) find_run(i);
      const uint64_t end = range.offset + range.bytes;
      for (uint64_t at = range.offset; at < end;) {
        if (reads_.empty() || !reads_.back().covers(range.file, at)) {
          sizes_.whole_blocks ? add_blocks(range, at) : add_pages(range, at);
        }
        at = std::min(end, reads_.back().offset + reads_.back().bytes);
      }
    }
    return std::move(reads_);
  }

 private:
  bool follows(size_t i) const {
    const WantedRange &before = ranges_[i - 1], &range = ranges_[i];
    return before.file == range.file && before.shared == range.shared &&
           before.offset + before.bytes == range.offset;
  }
  // The bytes that the ranges from `i` on want in one piece.
  void find_run(size_t i) {
    run_begin_ = ranges_[i].offset;
    run_end_ = run_begin_ + ranges_[i].bytes;
    while (++i < ranges_.size() && follows(i)) run_end_ += ranges_[i].bytes;
  }
  uint64_t end_of_block(const WantedRange& range, uint64_t block) const {
    return block + std::min(sizes_.block_bytes, files_[range.file].bytes - block);
  }
  void add_blocks(const WantedRange& range, uint64_t at) {
    const uint64_t begin = at / sizes_.block_bytes * sizes_.block_bytes;
    uint64_t end = end_of_block(range, begin);
    while (begin >= run_begin_ && end < run_end_) {
      const uint64_t next = end_of_block(range, end);
      if (next > run_end_ || next - begin > sizes_.read_bytes) break;
      end = next;
    }
    PlannedRead read{
        .file = range.file, .offset = begin, .bytes = end - begin, .shared = range.shared};
    if (const auto before = last_.find(reads_, read)) {
      reads_[*before].keep = true;
      read.repeat = true;
    }
    reads_.push_back(read);
    last_.add(reads_);
  }
  void add_pages(const WantedRange& range, uint64_t at) {
    const uint64_t block = at / sizes_.block_bytes * sizes_.block_bytes;
    const uint64_t end =
        std::min(end_of_block(range, block), round_up(range.offset + range.bytes, kReadPage));
    if (!reads_.empty() && may_extend(reads_.back(), range, at, sizes_.block_bytes)) {
      reads_.back().bytes = end - reads_.back().offset;
      return;
    }
    const uint64_t begin = at / kReadPage * kReadPage;
    reads_.push_back(
        {.file = range.file, .offset = begin, .bytes = end - begin, .shared = range.shared});
  }

  const std::span<const File> files_;
  const std::span<const WantedRange> ranges_;
  const ReadSizes sizes_;
  uint64_t run_begin_ = 0;
  uint64_t run_end_ = 0;
  std::vector<PlannedRead> reads_;
  LastReads last_;
};

}  // namespace

Result<std::vector<PlannedRead>> plan_reads(std::span<const File> files,
                                            std::span<const WantedRange> ranges,
                                            const ReadSizes& sizes) {
  return Planner(files, ranges, sizes).run();
}

}  // namespace meron::checkpoint

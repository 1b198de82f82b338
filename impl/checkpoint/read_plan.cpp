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
constexpr uint64_t kReadGap = 64 << 10;  // reading as much in vain takes less than another request

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

// Whether one read of the block can serve `at`, which comes after it, too.
bool may_extend(const PlannedRead& read, const WantedRange& range, uint64_t at, uint64_t block) {
  return read.file == range.file && at / block == read.offset / block && at >= read.offset &&
         at <= read.offset + read.bytes + kReadGap;
}

// The last read of each of the files that were read last.
class LastReads {
 public:
  // The number of a read of that block, if it is the last one of its file; it counts as used.
  std::optional<size_t> find(std::span<const PlannedRead> reads, uint32_t file, uint64_t block) {
    for (auto it = numbers_.begin(); it != numbers_.end(); ++it) {
      if (reads[*it].file != file) continue;
      return reads[*it].offset == block ? std::optional(*it) : std::nullopt;
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

}  // namespace

Result<std::vector<PlannedRead>> plan_reads(std::span<const File> files,
                                            std::span<const WantedRange> ranges,
                                            uint64_t block_bytes, bool whole_blocks) {
  std::vector<PlannedRead> reads;
  LastReads last;
  for (const WantedRange& range : ranges) {
    MERON_TRY(check_range(files, range));
    const uint64_t end = range.offset + range.bytes;
    for (uint64_t at = range.offset; at < end;) {
      const uint64_t block = at / block_bytes * block_bytes;
      const uint64_t block_end = block + std::min(block_bytes, files[range.file].bytes - block);
      const uint64_t read_end =
          whole_blocks ? block_end : std::min(block_end, round_up(end, kReadPage));
      if (reads.empty() || !reads.back().covers(range.file, at)) {
        if (!whole_blocks && !reads.empty() && may_extend(reads.back(), range, at, block_bytes)) {
          reads.back().bytes = read_end - reads.back().offset;
        } else {
          const uint64_t begin = whole_blocks ? block : at / kReadPage * kReadPage;
          reads.push_back({.file = range.file,
                           .offset = begin,
                           .bytes = read_end - begin,
                           .shared = range.shared});
          if (whole_blocks) {
            if (const auto before = last.find(reads, range.file, block)) {
              reads[*before].keep = true;
              reads.back().repeat = true;
            }
            last.add(reads);
          }
        }
      }
      at = std::min(end, reads.back().offset + reads.back().bytes);
    }
  }
  return reads;
}

}  // namespace meron::checkpoint

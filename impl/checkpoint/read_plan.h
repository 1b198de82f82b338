// SPDX-License-Identifier: Apache-2.0
// Which blocks of which files a sequence of ranges needs. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "checkpoint/manifest.h"

namespace meron::checkpoint {

// Number of files whose last read may be kept.
inline constexpr size_t kKeptFiles = 16;

// Requested bytes of a file.
struct WantedRange {
  uint32_t file = 0;  // index in Manifest::files
  uint64_t offset = 0;
  uint64_t bytes = 0;
  // Local peers want the same bytes at about the same time: they are read through the page cache.
  bool shared = false;
};

// One read of a file.
struct PlannedRead {
  uint32_t file = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  bool shared = false;
  bool keep = false;    // the same bytes are needed again later: a copy of them is kept
  bool repeat = false;  // it is those bytes: the copy serves, and nothing is read

  bool covers(uint32_t which, uint64_t at) const {
    return file == which && at >= offset && at - offset < bytes;
  }
};

struct ReadSizes {
  uint64_t block_bytes = 0;  // of a checksum
  uint64_t read_bytes = 0;   // of the longest read: at least a block
  bool whole_blocks = true;  // false: there are no checksums
};

// The reads that give all bytes of the ranges in their order: going through the ranges byte by
// byte, each byte is in the present read or in the one after it. With `whole_blocks` each read is
// one or more blocks, so that their checksums can be compared; else reads are as long as the ranges
// need, rounded outward to pages, and one read serves ranges that are close together.
//
// A block in which wanted bytes begin or end is a read of its own, because a local peer or a later
// range may want the rest of it. If one range of a file ends in it and the next range
// of that file begins, it is read once, although ranges of up to kKeptFiles - 1 other files are
// between: so are consecutive units, each in several files. Errors: MERON_E_ARGUMENT for a range
// outside of its file.
Result<std::vector<PlannedRead>> plan_reads(std::span<const File> files,
                                            std::span<const WantedRange> ranges,
                                            const ReadSizes& sizes);

}  // namespace meron::checkpoint

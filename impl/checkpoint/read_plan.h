// SPDX-License-Identifier: Apache-2.0
// Which blocks of which files a sequence of ranges needs. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "checkpoint/manifest.h"

namespace meron::checkpoint {

// Files of which the last block may be kept.
inline constexpr size_t kKeptFiles = 16;

// Bytes of a file that somebody wants.
struct WantedRange {
  uint32_t file = 0;  // index in Manifest::files
  uint64_t offset = 0;
  uint64_t bytes = 0;
  // Local peers want the same bytes at about the same time: they are read through the page cache.
  bool shared = false;
};

// One read of a file, within a block.
struct PlannedRead {
  uint32_t file = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  bool shared = false;
  bool keep = false;    // the block is needed again later: a copy of it is kept
  bool repeat = false;  // it is that block: the copy serves, and nothing is read

  bool covers(uint32_t which, uint64_t at) const {
    return file == which && at >= offset && at - offset < bytes;
  }
};

// The reads that give all bytes of the ranges in their order: going through the ranges byte by
// byte, each byte is in the present read or in the one after it. With `whole_blocks` each read is a
// block, so that its checksum can be compared; else reads are as long as the ranges need, rounded
// outward to pages, and one read serves ranges that are close together. A full block in which one
// range of a file ends and the next range of that file begins is read once, although ranges of up
// to kKeptFiles - 1 other files are between: so are consecutive units, each in several
// files. Errors: MERON_E_ARGUMENT for a range outside of its file.
Result<std::vector<PlannedRead>> plan_reads(std::span<const File> files,
                                            std::span<const WantedRange> ranges,
                                            uint64_t block_bytes, bool whole_blocks);

}  // namespace meron::checkpoint

// SPDX-License-Identifier: Apache-2.0
// Ranges of one file, which processes of several hosts write at the same time.
//
// Shards do not end at pages, so two hosts may write to one page. A network file system that reads
// such a page before a partial write, as Linux does for a descriptor that may read, later sends all
// of it: zeros in the place of what the other host wrote. So there nothing is open for reading, and
// partial pages go through a descriptor with O_DSYNC, whose writes NFS sends as they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "base/result.h"
#include "os/fd.h"

namespace meron::checkpoint {

// No host has larger pages, and hosts may have different ones.
inline constexpr uint64_t kLargestPage = 64 << 10;

// [offset, offset + bytes) as the bytes before the first page that is covered, those pages, and the
// bytes after the last. Without such a page all bytes are in the first.
struct PageCuts {
  uint64_t before = 0, pages = 0, after = 0;
};
PageCuts cut_at_pages(uint64_t offset, uint64_t bytes);

// The most elements of `width` bytes, at most `count`, that end where a page does, so that the next
// piece begins there; `count` if none do.
uint64_t end_at_page(uint64_t offset, uint64_t count, uint64_t width);

// A file that exists with its full size.
class RangeWriter {
 public:
  enum class Edges {
    automatic,  // exact on a network file system
    cached,
    exact,  // partial pages are sent as they are
  };
  static Result<RangeWriter> open(const std::string& path, Edges edges = Edges::automatic);
  Status write(std::span<const std::byte> data, uint64_t offset);
  // Waits until what was written is on the device.
  Status sync();

  int pages_fd() const { return pages_.get(); }
  int edges_fd() const { return edges_.get(); }  // -1: as pages_fd()

 private:
  RangeWriter(std::string path, UniqueFd pages, UniqueFd edges)
      : path_(std::move(path)), pages_(std::move(pages)), edges_(std::move(edges)) {}

  std::string path_;
  UniqueFd pages_, edges_;
};

}  // namespace meron::checkpoint

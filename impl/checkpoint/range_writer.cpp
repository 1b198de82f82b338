// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/range_writer.h"

#include "base/layout.h"
#include "checkpoint/file_steps.h"
#include "os/network_file.h"

namespace meron::checkpoint {

PageCuts cut_at_pages(uint64_t offset, uint64_t bytes) {
  const uint64_t end = offset + bytes;
  const uint64_t first = round_up(offset, kLargestPage), last = end / kLargestPage * kLargestPage;
  if (first >= last) return {.before = bytes, .pages = 0, .after = 0};
  return {.before = first - offset, .pages = last - first, .after = end - last};
}

uint64_t end_at_page(uint64_t offset, uint64_t count, uint64_t width) {
  const uint64_t past = (offset + count * width) % kLargestPage;
  return past % width == 0 && past / width < count ? count - past / width : count;
}

Result<RangeWriter> RangeWriter::open(const std::string& path, Edges edges) {
  MERON_ASSIGN(UniqueFd pages, open_to_write(path, false));
  const bool exact = edges == Edges::automatic ? on_network(pages.get()) : edges == Edges::exact;
  UniqueFd exactly;
  if (exact) {
    MERON_ASSIGN(exactly, open_to_write(path, true));
  }
  return RangeWriter(path, std::move(pages), std::move(exactly));
}

Status RangeWriter::write(std::span<const std::byte> data, uint64_t offset) {
  if (!edges_.valid()) return write_step(pages_.get(), data, offset, path_);
  const PageCuts cuts = cut_at_pages(offset, data.size());
  MERON_TRY(write_step(edges_.get(), data.first(cuts.before), offset, path_));
  offset += cuts.before;
  MERON_TRY(write_step(pages_.get(), data.subspan(cuts.before, cuts.pages), offset, path_));
  offset += cuts.pages;
  return write_step(edges_.get(), data.last(cuts.after), offset, path_);
}

Status RangeWriter::sync() {
  return sync_file_step(pages_.get(), path_);
}

}  // namespace meron::checkpoint

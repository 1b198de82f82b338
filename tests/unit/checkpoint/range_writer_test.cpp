// SPDX-License-Identifier: Apache-2.0
// Which descriptor writes which bytes of a file that several hosts write: pages in full, and
// partial pages exactly.
#include "checkpoint/range_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <random>

#include "os/file.h"
#include "saves.h"

namespace meron {
namespace {

using checkpoint::cut_at_pages;
using checkpoint::end_at_page;
using checkpoint::kLargestPage;
using checkpoint::RangeWriter;

constexpr uint64_t kEdge = kLargestPage;

TEST(PageCuts, OnlyFullPagesAreInTheMiddle) {
  const auto expect = [](uint64_t offset, uint64_t bytes, uint64_t before, uint64_t pages,
                         uint64_t after) {
    const auto cuts = cut_at_pages(offset, bytes);
    EXPECT_EQ(cuts.before, before) << offset << ' ' << bytes;
    EXPECT_EQ(cuts.pages, pages) << offset << ' ' << bytes;
    EXPECT_EQ(cuts.after, after) << offset << ' ' << bytes;
  };
  expect(0, 0, 0, 0, 0);
  expect(0, kEdge, 0, kEdge, 0);
  expect(kEdge, 2 * kEdge + 5, 0, 2 * kEdge, 5);
  expect(kEdge - 3, 3, 3, 0, 0);
  expect(kEdge - 3, 7, 7, 0, 0);
  expect(kEdge - 3, kEdge + 7, 3, kEdge, 4);
  expect(10, kEdge - 10, kEdge - 10, 0, 0);
  expect(10, 2 * kEdge, kEdge - 10, kEdge, 10);
}

TEST(PageCuts, PiecesEndAtPages) {
  EXPECT_EQ(end_at_page(0, kEdge, 4), kEdge);
  EXPECT_EQ(end_at_page(8, kEdge, 4), kEdge - 2);
  EXPECT_EQ(end_at_page(8, 100, 4), 100U) << "no page ends there";
  EXPECT_EQ(end_at_page(1, kEdge, 4), kEdge) << "elements are never cut";
}

class RangeWriterTest : public test::CommitTest {};

TEST_F(RangeWriterTest, NeverReadsAndSendsPartialPagesAtOnce) {
  const std::string path = directory_.path() + "/file";
  test::write_text(path, std::string(10, 'a'));
  const auto exact = RangeWriter::open(path, RangeWriter::Edges::exact);
  ASSERT_TRUE(exact.ok());
  EXPECT_EQ(::fcntl(exact->pages_fd(), F_GETFL) & (O_ACCMODE | O_DSYNC), O_WRONLY);
  EXPECT_EQ(::fcntl(exact->edges_fd(), F_GETFL) & (O_ACCMODE | O_DSYNC), O_WRONLY | O_DSYNC);
  const auto cached = RangeWriter::open(path, RangeWriter::Edges::cached);
  ASSERT_TRUE(cached.ok());
  EXPECT_EQ(cached->edges_fd(), -1);
  EXPECT_EQ(RangeWriter::open(path + "-none").error().code(), MERON_E_NOT_FOUND);
}

TEST_F(RangeWriterTest, WritersOfNeighbouringRangesWriteAllBytes) {
  const std::string path = directory_.path() + "/file";
  std::mt19937_64 random(3);
  std::string content(5 * kEdge + 77, '\0');
  for (char& byte : content) byte = static_cast<char>(random());
  for (const auto edges : {RangeWriter::Edges::automatic, RangeWriter::Edges::exact}) {
    test::write_text(path, std::string(content.size(), '\0'));
    auto even = RangeWriter::open(path, edges), odd = RangeWriter::open(path, edges);
    ASSERT_TRUE(even.ok() && odd.ok());
    for (uint64_t at = 0, turn = 0; at < content.size(); ++turn) {
      const uint64_t bytes = std::min(content.size() - at, 1 + random() % (2 * kEdge));
      EXPECT_OK((turn % 2 == 0 ? even : odd)
                    ->write(std::as_bytes(std::span(content).subspan(at, bytes)), at));
      at += bytes;
    }
    EXPECT_OK(even->sync());
    EXPECT_OK(odd->sync());
    EXPECT_EQ(*read_file(path, content.size()), content);
  }
}

}  // namespace
}  // namespace meron

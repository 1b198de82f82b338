// SPDX-License-Identifier: Apache-2.0
// Which slow waits a rank reports, by a clock of the test's own.
#include "engine/wait_reports.h"

#include <gtest/gtest.h>

namespace meron {
namespace {

constexpr int64_t kSecond = kNanosPerSecond;

TEST(WaitReports, AWaitIsReportedWhileItLastsAndWhenItEnds) {
  WaitReports reports(1);
  ASSERT_TRUE(reports.due(0));  // a clock may begin at 0
  EXPECT_EQ("rank 1 waits in the barrier", reports.waits(0, "rank 1 waits in the barrier"));
  EXPECT_EQ("rank 1 waited 12.4 s in the gather of unit 'h.3' for ranks 2-5: it goes on",
            reports.ended(7 * kSecond, true, 12'400'000'000, "gather of unit 'h.3'", "ranks 2-5"));
  EXPECT_EQ("rank 1 waited 12.4 s in the barrier: it goes on",
            reports.ended(8 * kSecond, true, 12'400'000'000, "barrier", ""));
}

TEST(WaitReports, FurtherOnesAreFoldedForAMinute) {
  WaitReports reports(0);
  (void)reports.waits(100 * kSecond, "first");
  EXPECT_FALSE(reports.due(159 * kSecond));
  EXPECT_EQ("", reports.ended(120 * kSecond, false, 6 * kSecond, "barrier", "rank 1"));
  EXPECT_EQ("", reports.ended(140 * kSecond, false, 7'500'000'000, "barrier", "rank 1"));
  ASSERT_TRUE(reports.due(160 * kSecond));
  EXPECT_EQ("rank 0 waits (2 more slow waits since the last report, 13.5 s in all)",
            reports.waits(160 * kSecond, "rank 0 waits"));
  // Counted once.
  EXPECT_EQ("rank 0 waits", reports.waits(220 * kSecond, "rank 0 waits"));
}

TEST(WaitReports, ThoseLeftOutAreReportedEvenIfNoOtherWaitIsSlow) {
  WaitReports reports(3);
  (void)reports.waits(10 * kSecond, "first");
  EXPECT_EQ("rank 3 waited: 1 more slow wait since the last report, 58.0 s in all",
            reports.ended(75 * kSecond, false, 58 * kSecond, "barrier", ""));
  EXPECT_FALSE(reports.due(80 * kSecond));
  EXPECT_TRUE(reports.due(135 * kSecond));
}

}  // namespace
}  // namespace meron

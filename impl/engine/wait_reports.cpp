// SPDX-License-Identifier: Apache-2.0
#include "engine/wait_reports.h"

#include <fmt/format.h>

#include <utility>

namespace meron {
namespace {

double seconds(int64_t ns) {
  return static_cast<double>(ns) / kNanosPerSecond;
}

}  // namespace

std::string WaitReports::take_left_out() {
  const uint64_t count = std::exchange(left_out_, 0);
  const int64_t ns = std::exchange(left_out_ns_, 0);
  return fmt::format("{} more slow wait{} since the last report, {:.1f} s in all", count,
                     count == 1 ? "" : "s", seconds(ns));
}

std::string WaitReports::waits(int64_t now, std::string waiting) {
  reported_ = true;
  last_ns_ = now;
  if (left_out_ > 0) waiting += fmt::format(" ({})", take_left_out());
  return waiting;
}

std::string WaitReports::ended(int64_t now, bool was_reported, int64_t waited_ns,
                               const std::string& what, const std::string& whom) {
  if (was_reported) {
    return fmt::format("rank {} waited {:.1f} s in the {}{}: it goes on", rank_, seconds(waited_ns),
                       what, whom.empty() ? std::string() : " for " + whom);
  }
  ++left_out_;
  left_out_ns_ += waited_ns;
  if (!due(now)) return {};
  reported_ = true;
  last_ns_ = now;
  return fmt::format("rank {} waited: {}", rank_, take_left_out());
}

}  // namespace meron

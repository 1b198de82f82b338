// SPDX-License-Identifier: Apache-2.0
// Which slow waits of a rank the log reports: one line while a wait is slow, one when it has ended
// well. For a while after a line further slow waits are counted only, and the next line says how
// many there were, so that a job whose every step is slow fills no log.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"

namespace meron {

// Guarded by the context's lock; it formats lines and logs none. `now`: of now_ns().
class WaitReports {
 public:
  // A wait is slow after kSlowNs. After a report, no other wait is reported for kQuietNs.
  static constexpr int64_t kSlowNs = 5 * kNanosPerSecond;
  static constexpr int64_t kQuietNs = 60 * kNanosPerSecond;

  explicit WaitReports(int rank) : rank_(rank) {}

  // True if a slow wait may be reported now. The caller asks again while the wait lasts, so an
  // endless wait is reported at the end of the quiet time.
  bool due(int64_t now) const { return !reported_ || now - last_ns_ >= kQuietNs; }
  // The line of a slow wait that still waits: `waiting`, and what was left out before.
  std::string waits(int64_t now, std::string waiting);
  // A slow wait has ended well: the line of one that was reported, of those left out if they are
  // due, or nothing. `what`: the operation. `whom`: "ranks 2-5", or empty if it is not known.
  std::string ended(int64_t now, bool was_reported, int64_t waited_ns, const std::string& what,
                    const std::string& whom);

 private:
  // "3 more slow waits since the last report, 31.2 s in all"; and forgets them.
  std::string take_left_out();

  const int rank_;
  bool reported_ = false;
  int64_t last_ns_ = 0;  // of the last report
  uint64_t left_out_ = 0;
  int64_t left_out_ns_ = 0;
};

}  // namespace meron

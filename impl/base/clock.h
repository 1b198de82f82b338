// SPDX-License-Identifier: Apache-2.0
// Monotonic time and deadlines. Every wait of the engine is given a Deadline, made once where the
// wait begins and handed down, so that retries and nested waits share one bound.
#pragma once

#include <cstdint>
#include <ctime>
#include <limits>

namespace meron {

inline constexpr int64_t kNanosPerSecond = 1'000'000'000;
inline constexpr int64_t kNanosPerMilli = 1'000'000;

// Nanoseconds of the monotonic clock: the same origin in every process of the host.
inline int64_t now_ns() {
  timespec ts{};
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return static_cast<int64_t>(ts.tv_sec) * kNanosPerSecond + ts.tv_nsec;
}

struct Deadline {
  int64_t ns = std::numeric_limits<int64_t>::max();  // on the clock of now_ns()

  static Deadline never() { return {}; }
  // `duration_ns` from now; already passed when not positive, never() when out of range.
  static Deadline after(int64_t duration_ns) { return after(duration_ns, now_ns()); }
  // The same from `now`, a value of now_ns().
  static Deadline after(int64_t duration_ns, int64_t now) {
    if (duration_ns >= std::numeric_limits<int64_t>::max() - now) return never();
    return {now + (duration_ns > 0 ? duration_ns : 0)};
  }
  static Deadline after_ms(int64_t duration_ms) {
    if (duration_ms >= std::numeric_limits<int64_t>::max() / kNanosPerMilli) return never();
    return after(duration_ms * kNanosPerMilli);
  }

  bool is_never() const { return ns == std::numeric_limits<int64_t>::max(); }
  bool passed() const { return !is_never() && now_ns() >= ns; }
  // Nanoseconds left: 0 when passed, the largest int64_t for never().
  int64_t remaining() const {
    if (is_never()) return ns;
    const int64_t left = ns - now_ns();
    return left > 0 ? left : 0;
  }
};

}  // namespace meron

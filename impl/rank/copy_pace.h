// SPDX-License-Identifier: Apache-2.0
// How a copy into memory that peers have read, and read next, is made: by usual stores or past the
// caches. A usual store must first take each line back from who has read it, but leaves it in a
// cache, from which the peer reads it: between cores that share a cache three times as fast as by
// way of memory (256 KiB: 7 us and not 23, the peer's reading included), between others five times
// as slow, and of large copies nothing stays in a cache. No CPU says which it is, so a rank finds
// out.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <limits>

#include "base/clock.h"

namespace meron {

// Of one rank. Any number of threads may copy at a time.
class CopyPace {
 public:
  enum Way { stored, streamed };

  explicit CopyPace(int64_t (*now)() = now_ns) : now_(now) {}

  // Calls `copy` with the way in which it is to copy these bytes.
  template <class Copy>
  void run(uint64_t bytes, Copy&& copy) {
    Class& sizes = classes_[class_of(bytes)];
    if (bytes < kMeasured) return copy(sizes.better());
    const uint32_t turn = sizes.turns.fetch_add(1, std::memory_order_relaxed);
    Way way = sizes.better();
    if (turn < kTrials) {
      way = turn % 2 == 0 ? streamed : stored;
    } else if (turn % kAgain == 0) {
      way = way == stored ? streamed : stored;  // what is faster may have changed
    }
    const int64_t begin = now_();
    copy(way);
    sizes.record(way, static_cast<uint64_t>(std::max<int64_t>(now_() - begin, 1)), bytes);
  }

 private:
  // Below, looking at the clock would cost more than it gains: small copies are like those of the
  // smallest class.
  static constexpr uint64_t kMeasured = 32 << 10;
  static constexpr uint32_t kTrials = 8;  // memory is touched for the first time in some of them
  static constexpr uint32_t kAgain = 128;

  struct Class {
    std::atomic<uint32_t> turns{0};
    // Picoseconds per byte: the least of late. Unknown, streaming is better: it is never far worse.
    std::array<std::atomic<uint64_t>, 2> pace{std::numeric_limits<uint64_t>::max() / 2,
                                              std::numeric_limits<uint64_t>::max() / 2};

    Way better() const {
      return pace[stored].load(std::memory_order_relaxed) <
                     pace[streamed].load(std::memory_order_relaxed)
                 ? stored
                 : streamed;
    }
    void record(Way way, uint64_t ns, uint64_t bytes) {
      const uint64_t now = ns * 1000 / bytes + 1;
      const uint64_t before = pace[way].load(std::memory_order_relaxed);
      // The estimate grows slowly, so an old best time is forgotten after some dozens of rounds.
      pace[way].store(std::min(now, before + before / 32 + 1), std::memory_order_relaxed);
    }
  };

  // By powers of two.
  static size_t class_of(uint64_t bytes) {
    const auto power = static_cast<size_t>(std::bit_width(std::max(bytes, kMeasured) / kMeasured));
    return std::min(power, kClasses) - 1;
  }
  static constexpr size_t kClasses = 16;

  int64_t (*now_)();
  std::array<Class, kClasses> classes_;
};

}  // namespace meron

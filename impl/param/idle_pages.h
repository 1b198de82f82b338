// SPDX-License-Identifier: Apache-2.0
// Pages of values that were brought in and that nobody reads any more. To make pages real and to
// give them back costs more than to fill them, so a unit keeps its own for its next gather: as long
// as other units are in use, and within what was in use at once before, so that what the rank needs
// at most does not grow.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>

namespace meron {

class Unit;

class IdlePages {
 public:
  // `bytes` more are in use than before. Others have to go while this returns one.
  void take(uint64_t bytes) {
    in_use_ += bytes;
    most_ = std::max(most_, in_use_);
  }
  Unit* excess() { return in_use_ == 0 || in_use_ + idle_ > most_ ? oldest() : nullptr; }
  // The one that was let go first; null: there is none.
  Unit* oldest() {
    if (queue_.empty()) return nullptr;
    const Kept first = queue_.front();
    queue_.pop_front();
    idle_ -= first.bytes;
    return first.unit;
  }
  // What was in use is idle; or in use again; or gone at once.
  void keep(Unit* unit, uint64_t bytes) {
    in_use_ -= bytes;
    idle_ += bytes;
    queue_.push_back({unit, bytes});
  }
  void reuse(const Unit* unit) {
    const auto found = std::find_if(queue_.begin(), queue_.end(),
                                    [&](const Kept& kept) { return kept.unit == unit; });
    idle_ -= found->bytes;
    in_use_ += found->bytes;
    queue_.erase(found);
  }
  void drop(uint64_t bytes) { in_use_ -= bytes; }

 private:
  struct Kept {
    Unit* unit;
    uint64_t bytes;
  };
  std::deque<Kept> queue_;
  uint64_t in_use_ = 0, idle_ = 0, most_ = 0;
};

}  // namespace meron

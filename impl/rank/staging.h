// SPDX-License-Identifier: Apache-2.0
// Memory of the arena that lives as long as somebody, perhaps a transfer under way, holds it.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/held.h"
#include "call_log/channel.h"
#include "memory/arena.h"

namespace meron {

class Staging {
 public:
  static Result<std::shared_ptr<Staging>> allocate(std::shared_ptr<Arena> arena, uint64_t bytes,
                                                   const std::string& name) {
    // Operations that run allocate it, and calls that have the turn.
    const auto take = [&] {
      const Recess recess(bytes >= kLongBytes);
      return arena->allocate(bytes, MemoryKind::staging, name);
    };
    MERON_ASSIGN(const Buffer buffer, take());
    return std::shared_ptr<Staging>(new Staging(std::move(arena), buffer));
  }
  // Much memory is released only when the lock is, because the caller may be in the middle of a
  // change.
  ~Staging() {
    Held* const held = Held::here();
    if (held == nullptr || buffer_.bytes < kLongBytes) {
      arena_->release(buffer_);
    } else {
      held->later([arena = std::move(arena_), buffer = buffer_] { arena->release(buffer); });
    }
  }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  std::byte* data() const { return buffer_.data; }

 private:
  Staging(std::shared_ptr<Arena> arena, const Buffer& buffer)
      : arena_(std::move(arena)), buffer_(buffer) {}

  std::shared_ptr<Arena> arena_;
  Buffer buffer_;
};

// World ranks' places in `channel` from which something of the batch is still to come.
inline std::vector<int> awaited(const Channel& channel, const Batch* batch) {
  std::vector<int> members;
  for (int m = 0; batch != nullptr && m < channel.size(); ++m) {
    if (!batch->arrived(channel.members().world_rank(m))) members.push_back(m);
  }
  return members;
}

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
// Memory of the arena that lives as long as somebody, perhaps a transfer under way, holds it.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "memory/arena.h"
#include "transport/channel.h"

namespace meron {

class Staging {
 public:
  static Result<std::shared_ptr<Staging>> allocate(std::shared_ptr<Arena> arena, uint64_t bytes,
                                                   const std::string& name) {
    MERON_ASSIGN(const Buffer buffer, arena->allocate(bytes, MemoryKind::staging, name));
    return std::shared_ptr<Staging>(new Staging(std::move(arena), buffer));
  }
  ~Staging() { arena_->release(buffer_); }
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

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <vector>

#include "tests/unit/transport/failing_allocation.h"
#include "transport/control.h"
#include "transport/link.h"

namespace meron {

// One end of two queues of messages, whose receives end when a message has come.
struct MessageQueue {
  std::deque<std::vector<std::byte>> sent;
  MessageQueue* peer = nullptr;
  std::byte* into = nullptr;  // of the one receive under way

  meron_transport table() {
    meron_transport table = MERON_TRANSPORT_INIT;
    table.user = this;
    table.send = [](void* user, uint64_t* request, int32_t, uint64_t, const void* data,
                    uint64_t bytes) {
      const OwnMemory own;
      const auto* from = static_cast<const std::byte*>(data);
      static_cast<MessageQueue*>(user)->sent.emplace_back(from, from + bytes);
      *request = 1;
      return meron_status{MERON_OK};
    };
    table.receive = [](void* user, uint64_t* request, int32_t, uint64_t, void* data, uint64_t) {
      static_cast<MessageQueue*>(user)->into = static_cast<std::byte*>(data);
      *request = 2;
      return meron_status{MERON_OK};
    };
    table.test = [](void* user, uint64_t request, uint64_t* bytes) {
      const OwnMemory own;
      auto& self = *static_cast<MessageQueue*>(user);
      if (request == 1) return meron_status{MERON_OK};
      auto& from = self.peer->sent;
      if (from.empty()) return meron_status{MERON_IN_PROGRESS};
      *bytes = from.front().size();
      std::memcpy(self.into, from.front().data(), from.front().size());
      from.pop_front();
      return meron_status{MERON_OK};
    };
    table.cancel = [](void*, uint64_t) {};
    return table;
  }
};

inline Link::Hello hello_of(uint64_t rank) {
  Link::Hello hello;
  hello.magic = kWindowMagic;
  hello.version = MERON_VERSION;
  hello.protocol = kProtocol;
  hello.world_size = 2;
  hello.rank = rank;
  return hello;
}

}  // namespace meron

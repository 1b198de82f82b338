// SPDX-License-Identifier: Apache-2.0
// A peer's control message, as a custom transport delivers it: whatever it holds, the window's
// neighbours stay as they are, and nonsense ends the use of the peer.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>

#include "transport/control.h"
#include "transport/link.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using namespace meron;

// Delivers one message from rank 1, and takes whatever is sent.
struct Peer {
  std::span<const uint8_t> message;
  std::byte* into = nullptr;
  bool delivered = false;
};

constexpr uint64_t kReceive = 1, kSend = 2;

meron_transport table_of(Peer& peer) {
  meron_transport table = MERON_TRANSPORT_INIT;
  table.user = &peer;
  table.send = [](void*, uint64_t* request, int32_t, uint64_t, const void*, uint64_t) {
    *request = kSend;
    return meron_status{MERON_OK};
  };
  table.receive = [](void* user, uint64_t* request, int32_t, uint64_t, void* into, uint64_t) {
    static_cast<Peer*>(user)->into = static_cast<std::byte*>(into);
    *request = kReceive;
    return meron_status{MERON_OK};
  };
  table.test = [](void* user, uint64_t request, uint64_t* bytes) {
    Peer& self = *static_cast<Peer*>(user);
    if (request == kSend) return meron_status{MERON_OK};
    if (self.delivered) return meron_status{MERON_IN_PROGRESS};
    self.delivered = true;
    std::memcpy(self.into, self.message.data(), self.message.size());
    *bytes = self.message.size();
    return meron_status{MERON_OK};
  };
  table.cancel = [](void*, uint64_t) {};
  return table;
}

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > kStagingChunk) return 0;
  static const std::shared_ptr<Window> window =
      std::move(Window::create(1 << 20)).value();  // one for all inputs: it only ever gets bytes
  Peer peer{std::span(data, size)};
  Link::Hello own;
  own.magic = kWindowMagic;
  own.version = MERON_VERSION;
  own.protocol = kProtocol;
  own.world_size = 2;
  Link link(table_of(peer), 0, 2, own);
  // Half of the inputs come when there is a window, the others while the ranks meet.
  if (size % 2 == 0) link.attach(window, {0, 1});
  while (link.pump()) {
  }
  constexpr size_t kHello = 16 + sizeof(Link::Hello);
  const bool met = link.met().ok() && link.unmet().empty();
  require(!met || size >= kHello, "who says no hello was not met");
  require(!(met && link.gone(1)) || size > kHello, "a hello alone is no nonsense");
  link.close(0);
  return 0;
}

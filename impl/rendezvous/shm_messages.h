// SPDX-License-Identifier: Apache-2.0
// What the processes of a host send each other while they meet. Fixed sizes: nothing is allocated
// by a number that a peer sent.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

#include "base/clock.h"
#include "base/result.h"
#include "meron/base.h"
#include "os/local_socket.h"
#include "transport/control.h"

namespace meron::shm {

// A process that ends closes its sockets up to this long before it counts as ended.
inline constexpr int64_t kDyingNs = 100 * kNanosPerMilli;

// The first message of a rank, with its arena's descriptor. The same in every version of Meron, so
// that each can name the others.
struct Hello {
  uint64_t magic = kWindowMagic;
  uint32_t protocol = kProtocol;
  uint32_t version = MERON_VERSION;
  int32_t rank = 0;
  int32_t world_size = 0;
  std::array<std::byte, 32> token{};
};

// Rank 0's answer when all have met (with the window's descriptor) or when the meeting failed.
struct Welcome {
  uint64_t magic = kWindowMagic;
  int32_t status = MERON_OK;
  int32_t peer = MERON_RANK_NONE;
  char what[512] = {};
  char advice[256] = {};
};

// Follows a welcome once per rank, with the arena's descriptor.
struct Introduction {
  int32_t rank = 0;
  int32_t pid = 0;
};

template <class T>
Status send(int fd, const T& message, std::span<const int> fds, Deadline deadline) {
  static_assert(std::is_trivially_copyable_v<T>);
  return send_message(fd, std::as_bytes(std::span(&message, 1)), fds, deadline);
}

template <class T>
Result<UniqueFd> receive(int fd, T& message, Deadline deadline) {
  static_assert(std::is_trivially_copyable_v<T>);
  MERON_ASSIGN(auto received, receive_message(fd, sizeof(T), 1, deadline));
  if (received.bytes.size() != sizeof(T)) {
    return Error(MERON_E_IO, fmt::format("a message of {} bytes came instead of {}",
                                         received.bytes.size(), sizeof(T)));
  }
  std::memcpy(&message, received.bytes.data(), sizeof(T));
  return received.fds.empty() ? UniqueFd() : std::move(received.fds.front());
}

}  // namespace meron::shm

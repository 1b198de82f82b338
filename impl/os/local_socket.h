// SPDX-License-Identifier: Apache-2.0
// Messages and descriptors between processes of one host.
//
// Sockets are Unix SOCK_SEQPACKET (one send is one receive) in the abstract namespace (no file is
// left behind; names vanish with their owner). Any process of the network namespace can connect, so
// a server checks peer_credentials() and a token. No call raises SIGPIPE; every call ends at its
// deadline with MERON_E_TIMEOUT; descriptors are close-on-exec.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "os/fd.h"

namespace meron {

inline constexpr size_t kMaxSocketName = 107;  // bytes
inline constexpr size_t kMaxMessageBytes = 64 << 10;
inline constexpr size_t kMaxMessageFds = 64;

struct PeerCredentials {
  int32_t pid = 0;   // 0 when the peer lives in a pid namespace that this process does not see
  uint32_t uid = 0;  // effective, at the time of connect (listener's side) or listen
};

struct SocketMessage {
  std::vector<std::byte> bytes;
  std::vector<UniqueFd> fds;
};

// MERON_E_DUPLICATE when the name is taken.
Result<UniqueFd> listen_abstract(std::string_view name);

// The next connection of a listening socket.
Result<UniqueFd> accept(int listener, Deadline deadline);

// Connects; waits until a listener has `name`.
Result<UniqueFd> connect_abstract(std::string_view name, Deadline deadline);

// Sends one message of 1 to kMaxMessageBytes bytes with copies of up to kMaxMessageFds
// descriptors. MERON_E_PEER_CLOSED if the peer has closed.
Status send_message(int fd, std::span<const std::byte> bytes, std::span<const int> fds,
                    Deadline deadline);

// Receives one message; one with more bytes or descriptors than allowed is dropped and is an
// error (MERON_E_IO), whose descriptors are closed. MERON_E_PEER_CLOSED at the end of the stream.
Result<SocketMessage> receive_message(int fd, size_t max_bytes, size_t max_fds, Deadline deadline);

// Senders get MERON_E_PEER_CLOSED from now on. Data that has arrived can still be received.
void stop_receiving(int fd);

Result<PeerCredentials> peer_credentials(int fd);

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
#include "tools/meron/reserved_port.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <utility>

namespace meron::tools {
namespace {

// A socket bound to all addresses of a family at a port that the kernel chooses. The kernel tries
// other ports while one is taken.
UniqueFd bind_any(sockaddr* any, socklen_t size) {
  UniqueFd bound(socket(any->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  const int off = 0;
  if (!bound || setsockopt(bound.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0) return {};
  // Without V6ONLY the port is free for IPv4 too.
  if (any->sa_family == AF_INET6 &&
      setsockopt(bound.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) != 0) {
    return {};
  }
  if (bind(bound.get(), any, size) != 0 || getsockname(bound.get(), any, &size) != 0) return {};
  return bound;
}

}  // namespace

ReservedPort reserve_port() {
  sockaddr_in6 both{};
  both.sin6_family = AF_INET6;
  if (UniqueFd bound = bind_any(reinterpret_cast<sockaddr*>(&both), sizeof both)) {
    return {std::move(bound), ntohs(both.sin6_port)};
  }
  sockaddr_in only{};  // a host without IPv6
  only.sin_family = AF_INET;
  if (UniqueFd bound = bind_any(reinterpret_cast<sockaddr*>(&only), sizeof only)) {
    return {std::move(bound), ntohs(only.sin_port)};
  }
  return {};
}

}  // namespace meron::tools

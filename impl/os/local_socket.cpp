// SPDX-License-Identifier: Apache-2.0
#include "os/local_socket.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "os/poll.h"
#include "os/system_error.h"

namespace meron {
namespace {

constexpr int kSocketType = SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC;
constexpr int kBacklog = 1024;
constexpr int64_t kFirstRetry = kNanosPerMilli / 2;
constexpr int64_t kLastRetry = 16 * kNanosPerMilli;

// Room for the control message of kMaxMessageFds descriptors, aligned as it must be.
struct ControlBuffer {
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(kMaxMessageFds * sizeof(int))> bytes{};
};

struct Address {
  sockaddr_un name{};
  socklen_t bytes = 0;
};

Result<Address> abstract_address(std::string_view name) {
  if (name.empty() || name.size() > kMaxSocketName) {
    return Error(MERON_E_ARGUMENT, fmt::format("a socket name has 1 to {} bytes, not {}",
                                               kMaxSocketName, name.size()));
  }
  // A leading zero byte makes the name abstract; all bytes of the length count, no terminator.
  Address address;
  address.name.sun_family = AF_UNIX;
  std::memcpy(address.name.sun_path + 1, name.data(), name.size());
  address.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

const sockaddr* raw(const Address& address) {
  return reinterpret_cast<const sockaddr*>(&address.name);
}

Result<UniqueFd> make_socket() {
  UniqueFd fd(::socket(AF_UNIX, kSocketType, 0));
  if (!fd.valid()) return system_error("cannot make a socket", errno);
  return fd;
}

bool peer_gone(int error) {
  return error == EPIPE || error == ECONNRESET || error == ENOTCONN;
}

Error closed() {
  return Error(MERON_E_PEER_CLOSED, "the peer closed the connection");
}

void sleep_ns(int64_t duration) {
  const timespec time{.tv_sec = 0, .tv_nsec = static_cast<long>(duration)};
  ::nanosleep(&time, nullptr);
}

// Takes over the descriptors that came with a message.
std::vector<UniqueFd> collect_fds(msghdr& header) {
  std::vector<UniqueFd> fds;
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof fd);
      fds.emplace_back(fd);
    }
  }
  return fds;
}

}  // namespace

Result<UniqueFd> listen_abstract(std::string_view name) {
  MERON_ASSIGN(const Address address, abstract_address(name));
  MERON_ASSIGN(UniqueFd fd, make_socket());
  if (::bind(fd.get(), raw(address), address.bytes) != 0) {
    if (errno == EADDRINUSE) {
      return Error(MERON_E_DUPLICATE, "another process listens under this name")
          .on(std::string(name));
    }
    return system_error("cannot bind a socket", errno).on(std::string(name));
  }
  if (::listen(fd.get(), kBacklog) != 0) {
    return system_error("cannot listen on a socket", errno).on(std::string(name));
  }
  return fd;
}

Result<UniqueFd> accept(int listener, Deadline deadline) {
  for (;;) {
    UniqueFd fd(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd.valid()) return fd;
    if (errno == EAGAIN) {
      auto ready = wait_ready(listener, POLLIN, deadline);
      if (!ready.ok()) return std::move(ready).error().during("accept");
    } else if (errno != EINTR && errno != ECONNABORTED) {
      return system_error("cannot accept a connection", errno);
    }
  }
}

Result<UniqueFd> connect_abstract(std::string_view name, Deadline deadline) {
  MERON_ASSIGN(const Address address, abstract_address(name));
  MERON_ASSIGN(UniqueFd fd, make_socket());
  for (int64_t pause = kFirstRetry;; pause = std::min(2 * pause, kLastRetry)) {
    if (::connect(fd.get(), raw(address), address.bytes) == 0) return fd;
    if (errno == EINTR) continue;
    // The listener does not exist yet, or its backlog is full.
    if (errno != ECONNREFUSED && errno != EAGAIN) {
      return system_error("cannot connect", errno).on(std::string(name));
    }
    const int64_t left = deadline.remaining();
    if (left == 0) {
      return Error(MERON_E_TIMEOUT, "no process accepted the connection before the deadline")
          .on(std::string(name))
          .during("connect");
    }
    sleep_ns(std::min(pause, left));
  }
}

Status send_message(int fd, std::span<const std::byte> bytes, std::span<const int> fds,
                    Deadline deadline) {
  if (bytes.empty() || bytes.size() > kMaxMessageBytes || fds.size() > kMaxMessageFds) {
    return Error(
        MERON_E_ARGUMENT,
        fmt::format("a message has 1 to {} bytes and at most {} descriptors, not {} and {}",
                    kMaxMessageBytes, kMaxMessageFds, bytes.size(), fds.size()));
  }
  iovec part{.iov_base = const_cast<std::byte*>(bytes.data()), .iov_len = bytes.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  ControlBuffer control;
  if (!fds.empty()) {
    header.msg_control = control.bytes.data();
    header.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(rights), fds.data(), fds.size_bytes());
  }
  for (;;) {
    if (::sendmsg(fd, &header, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return Ok{};
    const int error = errno;
    if (peer_gone(error)) return closed().during("send");
    if (error == EAGAIN) {
      auto ready = wait_ready(fd, POLLOUT, deadline);
      if (!ready.ok()) return std::move(ready).error().during("send");
    } else if (error == ETOOMANYREFS) {
      return Error(MERON_E_NO_MEMORY, "too many descriptors are on their way between processes",
                   "raise the limit on open files (ulimit -n)");
    } else if (error != EINTR) {
      return system_error("cannot send a message", error);
    }
  }
}

Result<SocketMessage> receive_message(int fd, size_t max_bytes, size_t max_fds, Deadline deadline) {
  if (max_bytes == 0 || max_bytes > kMaxMessageBytes || max_fds > kMaxMessageFds) {
    return Error(MERON_E_ARGUMENT,
                 fmt::format("cannot receive {} bytes and {} descriptors", max_bytes, max_fds));
  }
  SocketMessage message;
  message.bytes.resize(max_bytes);
  iovec part{.iov_base = message.bytes.data(), .iov_len = max_bytes};
  bool ended = false;
  for (;;) {
    ControlBuffer control;
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control.bytes.data();
    header.msg_controllen = control.bytes.size();
    const ssize_t count = ::recvmsg(fd, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (count == 0 || (count < 0 && peer_gone(errno))) {
      // An end is believed when it is reported twice. The kernel reports a reset ahead of the last
      // message, and an end to a receiver that found no message just before the last one came.
      if (ended) return closed().during("receive");
      ended = true;
      continue;
    }
    if (count < 0) {
      const int error = errno;
      if (error == EAGAIN) {
        auto ready = wait_ready(fd, POLLIN, deadline);
        if (!ready.ok()) return std::move(ready).error().during("receive");
      } else if (error != EINTR) {
        return system_error("cannot receive a message", error);
      }
      continue;
    }
    message.fds = collect_fds(header);
    if ((header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) || message.fds.size() > max_fds) {
      return Error(MERON_E_IO, fmt::format("a message has more than {} bytes or {} descriptors",
                                           max_bytes, max_fds))
          .during("receive");
    }
    message.bytes.resize(static_cast<size_t>(count));
    return message;
  }
}

void stop_receiving(int fd) {
  (void)::shutdown(fd, SHUT_RD);
}

Result<PeerCredentials> peer_credentials(int fd) {
  ucred credentials{};
  socklen_t bytes = sizeof credentials;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) != 0) {
    return system_error("cannot tell who the peer is", errno);
  }
  return PeerCredentials{.pid = credentials.pid, .uid = credentials.uid};
}

}  // namespace meron

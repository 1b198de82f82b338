// SPDX-License-Identifier: Apache-2.0
// A custom transport over stream sockets, as small as one can be that keeps to meron/transport.h:
// the reference for people who write their own. One socket per pair of ranks; a message is a frame
// of tag, size and bytes.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "meron/transport.h"

namespace meron::test {

// The sockets of a world, created before its ranks. Each rank keeps its own row.
class SocketMesh {
 public:
  explicit SocketMesh(int ranks) : ranks_(ranks), fds_(static_cast<size_t>(ranks * ranks), -1) {
    for (int a = 0; a < ranks; ++a) {
      for (int b = a + 1; b < ranks; ++b) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0) continue;
        at(a, b) = pair[0];
        at(b, a) = pair[1];
      }
    }
  }
  ~SocketMesh() { drop(); }
  SocketMesh(const SocketMesh&) = delete;
  SocketMesh& operator=(const SocketMesh&) = delete;

  // A rank's sockets, by peer; they are the caller's from now on.
  std::vector<int> take(int rank) {
    std::vector<int> row;
    for (int peer = 0; peer < ranks_; ++peer) row.push_back(std::exchange(at(rank, peer), -1));
    return row;
  }

  // Closes what was not taken: where ranks are processes, other ranks' sockets, so that their end
  // is seen.
  void drop() {
    for (int& fd : fds_) {
      if (fd >= 0) close(std::exchange(fd, -1));
    }
  }

 private:
  int& at(int rank, int peer) { return fds_[static_cast<size_t>(rank * ranks_ + peer)]; }

  int ranks_;
  std::vector<int> fds_;
};

class SocketTransport {
 public:
  explicit SocketTransport(std::vector<int> fds) {
    for (const int fd : fds) peers_.emplace_back().fd = fd;
  }
  ~SocketTransport() {
    for (const Peer& peer : peers_) {
      if (peer.fd >= 0) close(peer.fd);
    }
  }
  SocketTransport(const SocketTransport&) = delete;
  SocketTransport& operator=(const SocketTransport&) = delete;

  meron_transport table(uint64_t max_message = 0) {
    meron_transport table = MERON_TRANSPORT_INIT;
    table.name = "sockets";
    table.user = this;
    table.max_message = max_message;
    table.send = [](void* user, uint64_t* request, int32_t peer, uint64_t tag, const void* data,
                    uint64_t bytes) { return self(user).send(request, peer, tag, data, bytes); };
    table.receive = [](void* user, uint64_t* request, int32_t peer, uint64_t tag, void* data,
                       uint64_t bytes) {
      return self(user).receive(request, peer, tag, data, bytes);
    };
    table.test = [](void* user, uint64_t request, uint64_t* bytes) {
      return self(user).test(request, bytes);
    };
    table.cancel = [](void* user, uint64_t request) { self(user).requests_.erase(request); };
    table.idle = [](void* user, int64_t timeout_ns) { self(user).idle(timeout_ns); };
    table.closed = [](void* user) { self(user).closed_ = true; };
    return table;
  }
  bool closed() const { return closed_; }
  // Of messages that this process gave to its transports, without their heads.
  static uint64_t bytes_sent() { return sent_.load(); }

 private:
  struct Frame {
    uint64_t tag;
    uint64_t bytes;
  };
  struct Request {
    int peer = 0;
    bool sends = false;
    std::byte* data = nullptr;  // receives
    uint64_t bytes = 0;
    bool done = false;
  };
  struct Outgoing {
    uint64_t request = 0;
    Frame frame{};
    const std::byte* data = nullptr;
    uint64_t sent = 0;  // of frame and data together
  };
  struct Peer {
    int fd = -1;
    // Two ends: what a peer sent before it went may still be read when it takes nothing any more.
    bool takes_nothing = false;
    bool ended = false;
    std::deque<Outgoing> outgoing;
    std::vector<std::byte> in;                                     // incomplete messages
    std::map<uint64_t, std::deque<std::vector<std::byte>>> whole;  // by tag: not yet asked for
    std::map<uint64_t, std::deque<uint64_t>> wanted;               // by tag: requests
  };

  static SocketTransport& self(void* user) { return *static_cast<SocketTransport*>(user); }

  meron_status send(uint64_t* request, int32_t to, uint64_t tag, const void* data, uint64_t bytes) {
    Peer& peer = peers_[static_cast<size_t>(to)];
    if (peer.takes_nothing) return MERON_E_IO;
    sent_ += bytes;
    *request = ++last_;
    requests_[*request] = {to, true, nullptr, bytes, false};
    peer.outgoing.push_back({*request, {tag, bytes}, static_cast<const std::byte*>(data), 0});
    flush(peer);
    return MERON_OK;
  }

  meron_status receive(uint64_t* request, int32_t from, uint64_t tag, void* data, uint64_t bytes) {
    Peer& peer = peers_[static_cast<size_t>(from)];
    *request = ++last_;
    requests_[*request] = {from, false, static_cast<std::byte*>(data), bytes, false};
    peer.wanted[tag].push_back(*request);
    match(peer, tag);
    return MERON_OK;
  }

  meron_status test(uint64_t request, uint64_t* bytes) {
    const auto found = requests_.find(request);
    if (found == requests_.end()) return MERON_E_ARGUMENT;
    Peer& peer = peers_[static_cast<size_t>(found->second.peer)];
    if (!found->second.done) {
      flush(peer);
      read(peer);
    }
    if (found->second.done) {
      *bytes = found->second.bytes;
      requests_.erase(found);
      return MERON_OK;
    }
    return (found->second.sends ? peer.takes_nothing : peer.ended) ? MERON_E_IO : MERON_IN_PROGRESS;
  }

  void idle(int64_t timeout_ns) {
    std::vector<pollfd> fds;
    for (const Peer& peer : peers_) {
      if (peer.fd < 0 || peer.ended) continue;
      const int events = POLLIN | (peer.outgoing.empty() || peer.takes_nothing ? 0 : POLLOUT);
      fds.push_back({peer.fd, static_cast<short>(events), 0});
    }
    const timespec timeout{0, static_cast<long>(std::clamp<int64_t>(timeout_ns, 0, 999'999'999))};
    (void)ppoll(fds.data(), fds.size(), &timeout, nullptr);
  }

  void flush(Peer& peer) {
    while (!peer.outgoing.empty() && !peer.takes_nothing) {
      Outgoing& out = peer.outgoing.front();
      // A cancelled message must still be a message to the other side, unless nothing of it went.
      const bool cancelled = requests_.find(out.request) == requests_.end();
      if (cancelled && out.sent == 0) {
        peer.outgoing.pop_front();
        continue;
      }
      if (cancelled) {
        peer.takes_nothing = true;
        return;
      }
      const uint64_t whole = sizeof(Frame) + out.frame.bytes;
      while (out.sent < whole) {
        const bool head = out.sent < sizeof(Frame);
        const std::byte* from = head ? reinterpret_cast<const std::byte*>(&out.frame) + out.sent
                                     : out.data + (out.sent - sizeof(Frame));
        const uint64_t count = head ? sizeof(Frame) - out.sent : whole - out.sent;
        const ssize_t sent = ::send(peer.fd, from, count, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) {
          if (errno != EAGAIN) peer.takes_nothing = true;
          return;
        }
        out.sent += static_cast<uint64_t>(sent);
      }
      requests_[out.request].done = true;
      peer.outgoing.pop_front();
    }
  }

  void read(Peer& peer) {
    std::byte chunk[1 << 16];
    while (!peer.ended) {
      const ssize_t count = ::recv(peer.fd, chunk, sizeof chunk, 0);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) {
        if (count == 0 || errno != EAGAIN) peer.ended = peer.takes_nothing = true;
        break;
      }
      peer.in.insert(peer.in.end(), chunk, chunk + count);
    }
    size_t at = 0;
    Frame frame;
    while (peer.in.size() - at >= sizeof(frame)) {
      std::memcpy(&frame, peer.in.data() + at, sizeof(frame));
      if (peer.in.size() - at - sizeof(frame) < frame.bytes) break;
      const auto begin = peer.in.begin() + static_cast<ptrdiff_t>(at + sizeof(frame));
      peer.whole[frame.tag].emplace_back(begin, begin + static_cast<ptrdiff_t>(frame.bytes));
      at += sizeof(frame) + frame.bytes;
      match(peer, frame.tag);
    }
    peer.in.erase(peer.in.begin(), peer.in.begin() + static_cast<ptrdiff_t>(at));
  }

  // Gives messages to the requests that want them, both in order.
  void match(Peer& peer, uint64_t tag) {
    auto& messages = peer.whole[tag];
    auto& wanted = peer.wanted[tag];
    while (!messages.empty() && !wanted.empty()) {
      const auto request = requests_.find(wanted.front());
      wanted.pop_front();
      if (request == requests_.end()) continue;  // cancelled
      const std::vector<std::byte>& message = messages.front();
      const size_t count = std::min<size_t>(message.size(), request->second.bytes);
      if (count > 0) std::memcpy(request->second.data, message.data(), count);
      request->second.bytes = message.size();
      request->second.done = true;
      messages.pop_front();
    }
    if (messages.empty()) peer.whole.erase(tag);
    if (wanted.empty()) peer.wanted.erase(tag);
  }

  std::vector<Peer> peers_;
  std::map<uint64_t, Request> requests_;
  uint64_t last_ = 0;
  bool closed_ = false;
  static inline std::atomic<uint64_t> sent_{0};
};

}  // namespace meron::test

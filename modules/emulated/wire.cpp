// SPDX-License-Identifier: Apache-2.0
#include "modules/emulated/wire.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>

namespace meron::emulated {
namespace {

// "meron" and the version of the notes and of what goes with them.
constexpr uint64_t kMagic = 0x6d65726f6e000001;
// Notes have bounds of their own, so that none is ever half there.
constexpr int kNotes = SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC;
constexpr int kBytes = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;

// A first byte of 0 makes it a name that is no file's, and that goes with the socket.
socklen_t address_of(const std::string& name, sockaddr_un* out) {
  *out = {};
  out->sun_family = AF_UNIX;
  const size_t length = std::min(name.size(), sizeof(out->sun_path) - 1);
  std::memcpy(out->sun_path + 1, name.data(), length);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
}

union PassedSpace {
  cmsghdr aligned;
  char bytes[CMSG_SPACE(sizeof(int))];
};

uint64_t mixed(uint64_t seed, const void* data, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) {
    seed = (seed ^ static_cast<const unsigned char*>(data)[i]) * 0x100000001b3;
  }
  return seed;
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this == &other) return *this;
  reset();
  number_ = std::exchange(other.number_, -1);
  return *this;
}

void Descriptor::reset() {
  if (number_ >= 0) ::close(number_);
  number_ = -1;
}

Note note_of(Note::Kind kind, int32_t rank, int32_t size) {
  Note note;
  note.magic = kMagic;
  note.kind = kind;
  note.rank = rank;
  note.size = size;
  return note;
}

Note failure_note(int32_t rank, int32_t size, const State& failure) {
  Note note = note_of(Note::kFailed, rank, size);
  note.status = failure.status;
  const size_t length = std::min(failure.text.size(), sizeof(note.text) - 1);
  std::memcpy(note.text, failure.text.data(), length);
  return note;
}

int listen_at(Descriptor* out, const std::string& name) {
  Descriptor made(::socket(AF_UNIX, kNotes, 0));
  if (!made) return errno;
  sockaddr_un address;
  const socklen_t length = address_of(name, &address);
  if (::bind(made.number(), reinterpret_cast<const sockaddr*>(&address), length) < 0) return errno;
  if (::listen(made.number(), SOMAXCONN) < 0) return errno;
  *out = std::move(made);
  return 0;
}

int connect_to(Descriptor* socket, const std::string& name) {
  if (!*socket) *socket = Descriptor(::socket(AF_UNIX, kNotes, 0));
  if (!*socket) return errno;
  sockaddr_un address;
  const socklen_t length = address_of(name, &address);
  const int done = uninterrupted([&] {
    return ::connect(socket->number(), reinterpret_cast<const sockaddr*>(&address), length);
  });
  return done < 0 ? errno : 0;
}

int accept_at(Descriptor* out, const Descriptor& listener) {
  *out = Descriptor(uninterrupted([&] {
    return ::accept4(listener.number(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  }));
  return *out ? 0 : errno;
}

int make_pair(Descriptor* one, Descriptor* other) {
  std::array<int, 2> made{};
  if (::socketpair(AF_UNIX, kBytes, 0, made.data()) < 0) return errno;
  *one = Descriptor(made[0]);
  *other = Descriptor(made[1]);
  return 0;
}

bool is_of_same_user(const Descriptor& socket) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  return ::getsockopt(socket.number(), SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
         peer.uid == ::geteuid();
}

int send_note(const Descriptor& socket, const Note& note, const Descriptor* passed) {
  Note copied = note;
  iovec part{&copied, sizeof(copied)};
  PassedSpace space{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (passed != nullptr) {
    message.msg_control = space.bytes;
    message.msg_controllen = sizeof(space.bytes);
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    const int number = passed->number();
    std::memcpy(CMSG_DATA(header), &number, sizeof(number));
  }
  const ssize_t sent =
      uninterrupted([&] { return ::sendmsg(socket.number(), &message, MSG_NOSIGNAL); });
  return sent < 0 ? errno : 0;
}

// An end is believed when it is reported twice. The kernel reports a reset ahead of the last note,
// and an end to a receiver that found no note just before the last one came.
Heard receive_note(const Descriptor& socket, Note* note, Descriptor* passed) {
  bool ended = false;
  while (true) {
    *note = {};
    iovec part{note, sizeof(*note)};
    PassedSpace space{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = space.bytes;
    message.msg_controllen = sizeof(space.bytes);
    const ssize_t got =
        uninterrupted([&] { return ::recvmsg(socket.number(), &message, MSG_CMSG_CLOEXEC); });
    if (got < 0 && errno == EAGAIN) return Heard::kNothing;
    if (got <= 0) {
      if (ended) return Heard::kEnd;
      ended = true;
      continue;
    }
    const cmsghdr* const header = CMSG_FIRSTHDR(&message);
    if (header != nullptr && header->cmsg_type == SCM_RIGHTS) {
      int number = -1;
      std::memcpy(&number, CMSG_DATA(header), sizeof(number));
      *passed = Descriptor(number);
    }
    note->text[sizeof(note->text) - 1] = '\0';
    if (got == sizeof(*note) && note->magic == kMagic) return Heard::kNote;
  }
}

uint64_t host_number() {
  uint64_t number = 0xcbf29ce484222325;
  std::array<char, 64> boot{};
  const Descriptor file(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  if (file) {
    const ssize_t got =
        uninterrupted([&] { return ::read(file.number(), boot.data(), boot.size()); });
    if (got > 0) number = mixed(number, boot.data(), static_cast<size_t>(got));
  }
  struct stat space {};
  if (::stat("/proc/self/ns/net", &space) == 0) {
    number = mixed(number, &space.st_ino, sizeof(space.st_ino));
  }
  return number;
}

uint64_t random_number() {
  uint64_t number = 0;
  const ssize_t got = uninterrupted([&] { return ::getrandom(&number, sizeof(number), 0); });
  if (got == sizeof(number)) return number;
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  return mixed(static_cast<uint64_t>(::getpid()), &now, sizeof(now));
}

}  // namespace meron::emulated

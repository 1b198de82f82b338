// SPDX-License-Identifier: Apache-2.0
// How ranks of one host reach each other: sockets whose names are no files, and the notes that go
// over them. Nothing here waits.
#pragma once

#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "meron/backend.h"

namespace meron::emulated {

// How a communicator is, of one rank's view.
struct State {
  meron_status status = MERON_OK;
  std::string text;
};

// Owns a file descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() { reset(); }
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  explicit operator bool() const { return number_ >= 0; }
  int number() const { return number_; }
  void reset();

 private:
  int number_ = -1;
};

// A message between ranks, besides bytes.
struct Note {
  enum Kind : uint32_t {
    kHello = 1,   // from a caller it contains a socket for bytes
    kFailed = 2,  // `status` and `text`
    kLeft = 3,    // it was closed after `launches`
    kSilent = 4,  // no more notes of the rank will arrive
  };
  uint64_t magic = 0;
  uint32_t kind = 0;
  meron_status status = MERON_OK;
  int32_t rank = 0, size = 0;
  uint64_t launches = 0;
  char text[240] = {};
};

Note note_of(Note::Kind kind, int32_t rank, int32_t size);
Note failure_note(int32_t rank, int32_t size, const State& failure);

// The functions that return an int return 0 or an errno.

int listen_at(Descriptor* out, const std::string& name);  // EADDRINUSE: the name is taken
// ECONNREFUSED: no process has the name yet; EAGAIN: it has too many callers now. *socket may be
// passed again then.
int connect_to(Descriptor* socket, const std::string& name);
int accept_at(Descriptor* out, const Descriptor& listener);  // EAGAIN: no caller
int make_pair(Descriptor* one, Descriptor* other);
// True if the process at the other end belongs to the same user.
bool is_of_same_user(const Descriptor& socket);

int send_note(const Descriptor& socket, const Note& note, const Descriptor* passed = nullptr);
enum class Heard { kNothing, kNote, kEnd };
Heard receive_note(const Descriptor& socket, Note* note, Descriptor* passed);

// Distinguishes hosts, and parts of one that do not see each other's names.
uint64_t host_number();
uint64_t random_number();

template <class Call>
auto uninterrupted(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

}  // namespace meron::emulated

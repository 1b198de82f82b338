// SPDX-License-Identifier: Apache-2.0
// The other ranks of a communicator: finds them, and reads their notes. Nothing here waits. The
// owner guards it.
//
// Every rank listens at a name, connects to the ranks below it, and passes to each a socket for the
// bytes between the two. Notes use the first socket, so that they arrive even while bytes are
// unread.
#pragma once

#include <poll.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "modules/emulated/wire.h"

namespace meron::emulated {

class Peers {
 public:
  // `deaf`: ignores the end of a peer that has sent no note.
  Peers(std::string name, int32_t rank, int32_t size, bool deaf)
      : name_(std::move(name)), rank_(rank), size_(size), deaf_(deaf), peers_(size) {}

  State listen();
  // Continues to find them, and reads their notes. MERON_IN_PROGRESS: some have not arrived.
  State look();
  bool ready() const { return come_ + 1 == size_; }
  void tell(const Note& note);
  void leave();

  // For a launch, after all have arrived.
  int data(int32_t rank) const { return peers_[rank].data.number(); }
  // The error if that rank has closed the communicator before launch `number`.
  State left_before(int32_t rank, uint64_t number) const;
  // The error after that rank's bytes have ended. MERON_OK if it has announced its end, or if
  // `deaf`.
  State end_of(int32_t rank) const;
  void add_waits(std::vector<pollfd>* out) const;

 private:
  struct Peer {
    Descriptor control, data;  // data: it was called, or has called
    bool come = false;
    bool silent = false;           // no more notes will arrive
    bool excused = false;          // it has announced its end, which is no error
    std::optional<uint64_t> left;  // it was closed there, after so many launches
  };
  std::string name_of(int32_t rank) const { return name_ + "." + std::to_string(rank); }
  State accept_callers();
  State meet(Descriptor* caller, const Note& hello, Descriptor* data);
  State call_lower();
  State hear();
  State hear_from(int32_t rank);

  const std::string name_;
  const int32_t rank_, size_;
  const bool deaf_;
  Descriptor listener_;
  std::vector<Descriptor> callers_;  // that have not said yet who they are
  std::vector<Peer> peers_;          // by rank; the own one is unused
  int32_t come_ = 0;
};

}  // namespace meron::emulated

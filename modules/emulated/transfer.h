// SPDX-License-Identifier: Apache-2.0
// One launch of one rank: its bytes to every peer, and theirs to it, at the same time and without
// waiting. Each rank first sends its requests, so that ranks with different ones get an error.
#pragma once

#include <poll.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "modules/emulated/wire.h"

namespace meron::emulated {

struct GatherPart {
  static constexpr uint64_t kElsewhere = UINT64_MAX;
  const std::byte* from;
  std::byte* to;
  uint64_t bytes;
  uint64_t place;  // of `to` in a window; kElsewhere: in none
};

// All requests of one rank at a time.
struct Launch {
  std::vector<GatherPart> gathers;
  std::vector<meron_exchange_piece> pieces;
  bool fails = false;  // by request of the settings
};

// Ranges of memory, and the position in them.
template <class Byte>
class Ranges {
 public:
  void add(Byte* data, uint64_t bytes) {
    if (bytes > 0) ranges_.push_back({data, bytes});
  }
  bool done() const { return at_ == ranges_.size(); }
  Byte* data() const { return ranges_[at_].data; }
  uint64_t bytes() const { return ranges_[at_].bytes; }
  void take(uint64_t bytes) {
    ranges_[at_].data += bytes;
    ranges_[at_].bytes -= bytes;
    if (ranges_[at_].bytes == 0) ++at_;
  }

 private:
  struct Range {
    Byte* data;
    uint64_t bytes;
  };
  std::vector<Range> ranges_;
  size_t at_ = 0;
};

class Transfer {
 public:
  // `launch` outlives it. `sockets`: by rank; the own one is not looked at.
  Transfer(int32_t rank, uint64_t number, const Launch& launch, const std::vector<int>& sockets);

  // Moves bytes until it would block, or until `stop`.
  State advance(const std::atomic<bool>& stop);
  bool done() const;
  // True if the rank's socket has ended before all bytes were moved.
  bool has_ended(int32_t rank) const { return lanes_[rank].ended; }
  void add_waits(std::vector<pollfd>* out) const;

 private:
  enum class Reading { kCounts, kSizes, kBytes };
  // Bytes to and from one peer.
  struct Lane {
    int socket = -1;
    bool ended = false;
    std::vector<uint64_t> said, heard;  // descriptions of the requests
    Ranges<const std::byte> out;
    Ranges<std::byte> in;
    Reading reading = Reading::kCounts;
  };
  void copy_own() const;
  void prepare(int32_t peer, Lane* lane) const;
  bool send_some(Lane* lane) const;
  bool receive_some(Lane* lane) const;
  State go_on_reading(int32_t peer, Lane* lane) const;
  State check_counts(int32_t peer, const Lane& lane) const;
  State check_sizes(int32_t peer, Lane* lane) const;
  State differ_in_place(const GatherPart& part, int32_t peer, uint64_t others) const;
  State differ(uint64_t own, int32_t peer, uint64_t others, const char* what) const;

  const int32_t rank_;
  const uint64_t number_;
  const Launch& launch_;
  std::vector<Lane> lanes_;  // by rank; the own one is unused
};

}  // namespace meron::emulated

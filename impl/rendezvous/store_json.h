// SPDX-License-Identifier: Apache-2.0
// The files of a store (store.h), as readable JSON. Any version of Meron, or anything else, may
// have written a file. Text in another format reads as nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "rendezvous/token.h"

namespace meron {

// A rank's description of itself. Every version of Meron can read the version in it.
struct Card {
  int rank = 0;
  int world_size = 0;
  std::string number;  // random; of this opening, of rank 0 of its last call
  std::string call;    // the number of the rank 0 that it answers; of rank 0 its own
  std::string version;
  uint32_t protocol = 0;
  std::string host;
  std::string node;  // equal on ranks that can share memory
  int32_t pid = 0;
};

// Outcome of a rendezvous: the ranks, and the token of the world or the reason for its absence.
struct Outcome {
  std::vector<Card> cards;
  Token token;
  std::optional<Error> failure;

  const Card* find(int rank) const;
  // "ranks 0-3 on host A, ranks 4-7 on host B": by nodes.
  std::string places() const;
  int nodes() const;
};

std::string to_text(const Card& card);
std::string to_text(const Outcome& outcome);
std::optional<Card> read_card(std::string_view text);
std::optional<Outcome> read_outcome(std::string_view text);

inline constexpr size_t kMaxCardBytes = 4096;
inline constexpr size_t kMaxOutcomeBytes = 8 << 20;

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
#include "call_log/diverging_calls.h"

#include <fmt/format.h>

namespace meron {

Error diverging_calls(uint64_t sequence, int rank, const CallRecord& own, int peer,
                      const CallRecord& other, std::string difference) {
  if (difference.empty() && call_text(own) == call_text(other)) {
    difference = "; the names are equal, but arguments that the message does not show differ";
  }
  return Error(MERON_E_MISMATCH,
               fmt::format("ranks diverge at call {}: rank {} called {}, rank {} called {}{}",
                           sequence, rank, call_text(own), peer, call_text(other), difference),
               "let all ranks of a group make the same calls in the same order; the context's "
               "flight record shows what came before")
      .during(std::string(name_of(static_cast<CallKind>(own.operation))))
      .on(own.subject)
      .blaming(peer);
}

}  // namespace meron

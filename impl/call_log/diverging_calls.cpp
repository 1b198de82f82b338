// SPDX-License-Identifier: Apache-2.0
#include "call_log/diverging_calls.h"

#include <fmt/format.h>

namespace meron {
namespace {

// The arguments that are only in the fingerprint of a call.
const char* hidden_arguments(CallKind kind) {
  switch (kind) {
    case CallKind::create_optimizer:
      return "the rule or an option of it";
    case CallKind::step:
      return "a learning rate, another option of an optimizer group, max_norm, the number of steps "
             "or "
             "the params that the step skips";
    case CallKind::reduce:
    case CallKind::finish:
      return "the operation, the divisor or another option";
    default:
      return "an argument that the message does not show";
  }
}

}  // namespace

Error diverging_calls(uint64_t sequence, int rank, const CallRecord& own, int peer,
                      const CallRecord& other, std::string difference) {
  if (difference.empty() && call_text(own) == call_text(other)) {
    difference = fmt::format("; the names are equal, and {} differs",
                             hidden_arguments(static_cast<CallKind>(own.operation)));
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

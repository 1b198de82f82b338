// SPDX-License-Identifier: Apache-2.0
#include "operations.h"

namespace conformance {
namespace {

Operations all_operations() {
  Operations all;
  for (const auto& some :
       {library_operations, context_operations, group_operations, param_operations,
        gather_operations, training_operations, schedule_operations, io_operations,
        checkpoint_operations, call_operations, future_operations}) {
    all.merge(some());
  }
  return all;
}

bool takes_part(const Session& session, const Statement& statement) {
  return !statement.has("on") || contains(statement.list("on"), std::to_string(session.setup.rank));
}

void check_failure(const Statement& statement, const CallFailed& failed) {
  const std::string code = meron_status_name(failed.status);
  check(statement.has("fails"), code + ": " + failed.message);
  check(contains(split(statement.get("fails"), '|'), code),
        code + " instead of " + statement.get("fails") + ": " + failed.message);
  if (statement.has("says")) {
    check(holds(failed.message, statement.get("says")),
          "the message lacks '" + statement.get("says") + "': " + failed.message);
  }
  if (statement.has("peer")) check_equal("the peer", failed.peer, statement.number("peer", 0));
}

}  // namespace

void execute(Session& session, const Statement& statement) {
  static const Operations operations = all_operations();
  if (!takes_part(session, statement)) return;
  const auto found = operations.find(statement.operation);
  if (found == operations.end()) throw Malformed{"unknown operation '" + statement.operation + "'"};
  try {
    found->second(session, statement);
  } catch (const CallFailed& failed) {
    check_failure(statement, failed);
    return;
  }
  check(!statement.has("fails"), "it did not fail with " + statement.get("fails", ""));
}

}  // namespace conformance

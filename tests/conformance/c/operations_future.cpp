// SPDX-License-Identifier: Apache-2.0
#include "operations.h"

namespace conformance {
namespace {

Future& future_of(Object& object) {
  if (auto* gather = dynamic_cast<Gather*>(&object)) return *gather->owned;
  return dynamic_cast<Future&>(object);
}

// Waits for a future or a gather: what the library returned, MERON_OK or MERON_IN_PROGRESS.
meron_status wait_for(Object& object, int64_t timeout_ns) {
  return call(meron_future_wait, future_of(object).handle, timeout_ns);
}

meron_status poll_once(Object& object) {
  return call(meron_future_poll, future_of(object).handle);
}

void wait(Session& session, const Statement& statement) {
  check_ended(statement, wait_for(session.any(statement.name), timeout_of(statement)));
}

void poll(Session& session, const Statement& statement) {
  Object& object = session.any(statement.name);
  meron_status status = poll_once(object);
  for (int i = 0; status == MERON_IN_PROGRESS && !statement.has("pending") && i < kAttempts; ++i) {
    sleep_seconds(0.001);
    status = poll_once(object);
  }
  check_ended(statement, status);
}

void wait_any(Session& session, const Statement& statement) {
  std::vector<meron_future> futures;
  for (const std::string& name : statement.list("futures")) {
    futures.push_back(future_of(session.any(name)).handle);
  }
  size_t which = 0;
  check_ended(statement,
              call(meron_future_wait_any, &which, static_cast<const meron_future*>(futures.data()),
                   futures.size(), timeout_of(statement)));
  const auto found = static_cast<double>(which);
  check_equal("the index", found, statement.number("is", found));
}

void finish(Session& session, const Statement& statement) {
  Future& future = future_of(session.any(statement.name));
  try {
    call(meron_future_finish, future.handle, timeout_of(statement));
  } catch (const CallFailed& failed) {
    if (failed.status != MERON_E_STALE && failed.status != MERON_E_HANDLE) future.ended();
    throw;
  }
  future.ended();
}

void release(Session& session, const Statement& statement) {
  session.any(statement.name).release();
}

void sleep(Session&, const Statement& statement) {
  sleep_seconds(statement.number("s", 0));
}

}  // namespace

Operations future_operations() {
  return {{"wait", wait},     {"poll", poll},       {"wait_any", wait_any},
          {"finish", finish}, {"release", release}, {"sleep", sleep}};
}

}  // namespace conformance

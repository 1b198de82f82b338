// SPDX-License-Identifier: Apache-2.0
#include "operations.h"

namespace conformance {
namespace {

// Waits for a future or a gather: what the library returned, MERON_OK or MERON_IN_PROGRESS.
meron_status wait_for(Object& object, int64_t timeout_ns) {
  if (auto* gather = dynamic_cast<Gather*>(&object)) {
    return call(meron_future_wait, gather->owned->handle, timeout_ns);
  }
  return call(meron_future_wait, dynamic_cast<Future&>(object).handle, timeout_ns);
}

meron_status poll_once(Object& object) {
  if (auto* gather = dynamic_cast<Gather*>(&object)) {
    return call(meron_future_poll, gather->owned->handle);
  }
  return call(meron_future_poll, dynamic_cast<Future&>(object).handle);
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

void release(Session& session, const Statement& statement) {
  session.any(statement.name).release();
}

void sleep(Session&, const Statement& statement) {
  sleep_seconds(statement.number("s", 0));
}

}  // namespace

Operations future_operations() {
  return {{"wait", wait}, {"poll", poll}, {"release", release}, {"sleep", sleep}};
}

}  // namespace conformance

// SPDX-License-Identifier: Apache-2.0
#include "meron/future.h"

#include "capi/future_kinds.h"
#include "capi/guard.h"

using namespace meron;        // NOLINT: this file is the C side of that namespace
using namespace meron::capi;  // NOLINT

namespace {

// An operation that yields nothing but its end.
Result<bool> await_operation(meron_future future, int64_t timeout_ns, bool tells, int& rank) {
  MERON_ASSIGN(const auto holder, get<FutureHolder>(future, rank));
  if (!holder->value) return true;
  Result<bool> ended = holder->context->wait(holder->value, timeout_ns);
  if (tells) holder->context->note_delivered(*holder->value, ended);
  return ended;
}

Status release_operation(meron_future future, int&) {
  MERON_ASSIGN(auto holder, take<FutureHolder>(future));
  if (!holder->value) return Ok{};
  // This may drop the last reference to a step's optimizer, which notifies its units under the
  // lock.
  const auto context = holder->context;
  auto last = holder->value;
  holder.reset();
  context->release_in_turn([&left = *context, last = std::move(last)]() mutable {
    left.leave(last);
    last.reset();
  });
  return Ok{};
}

// The calls of a kind of future, with their names in errors.
struct Calls {
  const char *wait_name, *poll_name, *release_name;
  Result<bool> (*await)(meron_future, int64_t timeout_ns, bool tells, int& rank);
  Status (*release)(meron_future, int& rank);
};
constexpr Calls kGather = {"gather_wait", "gather_poll", "gather_release", await_gather,
                           release_gather};
constexpr Calls kUpdate = {"update_wait", "update_poll", "update_release", await_update,
                           release_update};
constexpr Calls kIoRequest = {"io_request_wait", "io_request_poll", "io_request_release",
                              await_io_request, release_io_request};
// Also for handles that are no future: its lookup says so.
constexpr Calls kOperation = {"future_wait", "future_poll", "future_release", await_operation,
                              release_operation};

const Calls& calls_of(meron_future future) {
  switch (HandleTable::kind_of(future.id)) {
    case Kind::gather:
      return kGather;
    case Kind::update:
      return kUpdate;
    case Kind::io_request:
      return kIoRequest;
    default:
      return kOperation;
  }
}

}  // namespace

extern "C" {

meron_status meron_future_wait(meron_future future, int64_t timeout_ns, meron_error** err) {
  const Calls& calls = calls_of(future);
  // Without a timeout it is a poll, which a callback may call, too.
  return guard(timeout_ns == 0 ? calls.poll_name : calls.wait_name, err,
               [&](int& rank) -> Result<meron_status> {
                 MERON_TRY(check_timeout(timeout_ns));
                 return progress_status(calls.await(future, timeout_ns, true, rank));
               });
}

meron_status meron_future_poll(meron_future future, meron_error** err) {
  const Calls& calls = calls_of(future);
  return guard(calls.poll_name, err, [&](int& rank) -> Result<meron_status> {
    return progress_status(calls.await(future, 0, err != nullptr, rank));
  });
}

meron_status meron_future_release(meron_future future, meron_error** err) {
  const Calls& calls = calls_of(future);
  return guard(calls.release_name, err,
               [&](int& rank) -> Status { return calls.release(future, rank); });
}

}  // extern "C"

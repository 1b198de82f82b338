// SPDX-License-Identifier: Apache-2.0
#include "meron/future.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

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
  const char *wait_name, *poll_name, *release_name, *finish_name;
  Result<bool> (*await)(meron_future, int64_t timeout_ns, bool tells, int& rank);
  Status (*release)(meron_future, int& rank);
};
constexpr Calls kGather = {"gather_wait",   "gather_poll", "gather_release",
                           "gather_finish", await_gather,  release_gather};
constexpr Calls kUpdate = {"update_wait",   "update_poll", "update_release",
                           "update_finish", await_update,  release_update};
constexpr Calls kIoRequest = {"io_request_wait",   "io_request_poll", "io_request_release",
                              "io_request_finish", await_io_request,  release_io_request};
// Also for handles that are no future: its lookup says so.
constexpr Calls kOperation = {"future_wait",   "future_poll",   "future_release",
                              "future_finish", await_operation, release_operation};

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

// The context of a future. An error also for a transfer of files, which has none.
Result<std::shared_ptr<Context>> context_of(meron_future future, int& rank) {
  const auto found = [](const auto& holder) -> Result<std::shared_ptr<Context>> {
    if (!holder.ok()) return holder.error();
    return (*holder)->context;
  };
  switch (HandleTable::kind_of(future.id)) {
    case Kind::gather:
      return found(get<GatherHolder>(future, rank));
    case Kind::update:
      return found(get<UpdateHolder>(future, rank));
    case Kind::io_request:
      return Error(MERON_E_HANDLE, "a transfer of files belongs to no context",
                   "wait for it alone, or for all of its io");
    default:
      return found(get<FutureHolder>(future, rank));
  }
}

// The one context of some futures; null ones are skipped.
Result<std::shared_ptr<Context>> context_of_all(const meron_future* futures, size_t count,
                                                int& rank) {
  std::shared_ptr<Context> context;
  for (size_t i = 0; i < count; ++i) {
    if (futures[i].id == 0) continue;
    auto own = context_of(futures[i], rank);
    if (own.ok() && context && context != *own) {
      own = Error(MERON_E_HANDLE, "the futures belong to different contexts",
                  "wait for the futures of one context");
    }
    if (!own.ok()) return std::move(own).error().on(fmt::format("futures[{}]", i));
    context = *std::move(own);
  }
  if (context) return context;
  return Error(MERON_E_HANDLE, "all futures are null", "give one that was begun").on("futures");
}

// True if the future has ended, well or not. An error if its handle is no more.
Result<bool> has_ended(meron_future future, int& rank) {
  const Result<bool> ended = calls_of(future).await(future, 0, false, rank);
  if (ended.ok()) return *ended;
  const meron_status code = ended.error().code();
  if (code == MERON_E_STALE || code == MERON_E_HANDLE || code == MERON_E_FORKED) {
    return ended.error();
  }
  return true;
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

meron_status meron_future_finish(meron_future future, int64_t timeout_ns, meron_error** err) {
  const Calls& calls = calls_of(future);
  return guard(calls.finish_name, err, [&](int& rank) -> Result<meron_status> {
    MERON_TRY(check_timeout(timeout_ns));
    if (HandleTable::kind_of(future.id) == Kind::update) {
      return Error(MERON_E_HANDLE, "an update ends when it is published",
                   "write its values, then publish it");
    }
    Result<meron_status> waited = progress_status(calls.await(future, timeout_ns, true, rank));
    if (waited.ok() && *waited == MERON_IN_PROGRESS) return waited;
    // After a failed look-up there is nothing to release, and the first error says why.
    const Status released = calls.release(future, rank);
    if (waited.ok() && !released.ok()) return released.error();
    return waited;
  });
}

meron_status meron_future_wait_any(size_t* out, const meron_future* futures, size_t count,
                                   int64_t timeout_ns, meron_error** err) {
  return guard("future_wait_any", err, [&](int& rank) -> Result<meron_status> {
    MERON_TRY(need(out, "out"));
    MERON_TRY(need(futures, "futures"));
    MERON_TRY(check_timeout(timeout_ns));
    MERON_ASSIGN(const auto context, context_of_all(futures, count, rank));
    size_t first = 0;
    const auto look = [&]() -> Result<bool> {
      for (first = 0; first < count; ++first) {
        if (futures[first].id == 0) continue;
        MERON_ASSIGN(const bool ended, has_ended(futures[first], rank));
        if (ended) return true;
      }
      return false;
    };
    MERON_ASSIGN(const bool ended, context->look_until(look, timeout_ns));
    *out = first;
    return ended ? MERON_OK : MERON_IN_PROGRESS;
  });
}

}  // extern "C"

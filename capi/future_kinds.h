// SPDX-License-Identifier: Apache-2.0
// Functions that wait for and release futures that are more than an operation. Each pair is next to
// the functions that begin such a future; future.cpp chooses by the handle's kind.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "meron/future.h"

namespace meron::capi {

// True when it has ended, false when `timeout_ns` passed first. Notes the rank, for errors.
// `tells`: the caller gets the error, which then counts as seen.
Result<bool> await_gather(meron_future future, int64_t timeout_ns, bool tells, int& rank);
Result<bool> await_update(meron_future future, int64_t timeout_ns, bool tells, int& rank);
Result<bool> await_io_request(meron_future future, int64_t timeout_ns, bool tells, int& rank);

// The handle is stale from then on.
Status release_gather(meron_future future, int& rank);
Status release_update(meron_future future, int& rank);
Status release_io_request(meron_future future, int& rank);

}  // namespace meron::capi

// SPDX-License-Identifier: Apache-2.0
// Private to os/: waiting for descriptors.
#pragma once

#include "base/clock.h"
#include "base/result.h"

namespace meron {

// Waits until `fd` has one of `events` (POLLIN, POLLOUT) or a hang-up or error, which the next
// call on it will report it. MERON_E_TIMEOUT at the deadline; a deadline that has passed still
// checks once.
Status wait_ready(int fd, short events, Deadline deadline);

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
// The end of a process that cannot continue and could not close: a device that no call can free.
#pragma once

#include <string_view>

namespace meron {

// Writes "meron: REASON; this process ends" to stderr, and exits at once with code 1: no handler of
// atexit runs, because it could wait for the device.
[[noreturn]] void end_process(std::string_view reason);

}  // namespace meron

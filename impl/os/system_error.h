// SPDX-License-Identifier: Apache-2.0
// Turns errno into an Error with words.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace meron {

// "cannot allocate memory (ENOMEM)": thread-safe, independent of the locale.
std::string errno_text(int error);

// "`what`: `text of error`". The code follows from errno: lack of memory or descriptors is
// MERON_E_NO_MEMORY, lack of space on a drive MERON_E_NO_SPACE, a missing file MERON_E_NOT_FOUND,
// a passed time MERON_E_TIMEOUT, and the rest MERON_E_IO.
Error system_error(std::string_view what, int error, std::string advice = {});

// The same of memory that the kernel keeps as a file: where that has no room, memory lacks.
Error memory_error(std::string_view what, int error, std::string advice = {});

}  // namespace meron

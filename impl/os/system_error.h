// SPDX-License-Identifier: Apache-2.0
// Turns errno into an Error with words.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace meron {

// "cannot allocate memory (ENOMEM)": thread-safe, independent of the locale.
std::string errno_text(int error);

// "`what`: `text of error`". The code follows from errno: lack of memory, space or descriptors is
// MERON_E_NO_MEMORY, a passed time is MERON_E_TIMEOUT, the rest is MERON_E_IO.
Error system_error(std::string_view what, int error, std::string advice = {});

}  // namespace meron

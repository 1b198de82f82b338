// SPDX-License-Identifier: Apache-2.0
// Libraries that are opened while the program runs.
#pragma once

#include <string>

#include "base/result.h"

namespace meron {

// Opens a library that was built and installed beside this one, or where the program's search for
// libraries finds it, and returns one of its functions. It stays open for good.
// MERON_E_UNSUPPORTED, with the loader's reason: there is none, or it cannot be loaded.
Result<void*> function_of_module(const std::string& library, const std::string& function);

}  // namespace meron

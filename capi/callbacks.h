// SPDX-License-Identifier: Apache-2.0
// Which functions of the C ABI the trainer's functions may call: the rule of meron/meron.h.
#pragma once

#include <string_view>

#include "base/callback.h"
#include "base/result.h"

namespace meron::capi {

// MERON_E_STATE if the calling thread is within a callback that may not call the function.
// `function` is its name in errors, without "meron_".
Status check_in_callback(std::string_view function);

}  // namespace meron::capi

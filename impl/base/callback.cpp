// SPDX-License-Identifier: Apache-2.0
#include "base/callback.h"

namespace meron {

thread_local Callback CallbackScope::here_ = Callback::none;

}  // namespace meron

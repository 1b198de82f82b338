// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace meron {

enum class LogLevel : int32_t { error = 0, warning = 1, info = 2 };

// Called without any lock of the engine held.
using LogSink = std::function<void(LogLevel, const std::string&)>;

}  // namespace meron

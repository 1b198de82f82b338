// SPDX-License-Identifier: Apache-2.0
// A number of bytes in the JSON of predictions and estimates. Internal to this folder.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

#include "base/human_bytes.h"

namespace meron {

inline nlohmann::ordered_json bytes_json(uint64_t value) {
  return {{"bytes", value}, {"human", human_bytes(value)}};
}

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
// Amounts of bytes as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace meron {

// "1.5 GiB": with one decimal, below 1,024 of its unit; "17 B" below 1 KiB.
std::string human_bytes(uint64_t bytes);

}  // namespace meron

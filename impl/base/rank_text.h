// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

namespace meron {

// "rank 2", "ranks 2, 5", "ranks 0, 3-511": ascending ranks for messages, three and more in a row
// as a range, so that a message stays short in a world of thousands.
std::string ranks_text(std::span<const int> ranks);

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
// Text in aligned columns. Internal to this folder.
#pragma once

#include <string>
#include <vector>

namespace meron {

// Rows of equally many cells, each column as wide as its widest cell, two spaces between columns,
// no trailing space. The first `left` columns are aligned left, the others right.
std::string in_columns(const std::vector<std::vector<std::string>>& rows, size_t left);

}  // namespace meron

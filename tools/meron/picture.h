// SPDX-License-Identifier: Apache-2.0
// Pictures, which matplotlib draws: the command holds the script and starts python3 with it.
#pragma once

#include <string>

namespace meron::tools {

// Throws a usage Failure unless the name ends in .png, .pdf or .svg.
void check_picture_name(const std::string& path);

// Draws what `meron plan --cluster --json` prints. Throws a Failure when there is no python3 or no
// matplotlib, saying how to get it.
void draw_ranking(const std::string& json, const std::string& path);
// The same of what `meron io-bench --json` writes.
void draw_io_bench(const std::string& json, const std::string& path);

}  // namespace meron::tools

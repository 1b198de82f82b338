// SPDX-License-Identifier: Apache-2.0
// Python programs that the command starts for itself.
#pragma once

#include <string>
#include <vector>

namespace meron::tools {

// The interpreters to try, in order: python3 of the environment that is active (VIRTUAL_ENV), and
// python3 of PATH.
std::vector<std::string> python_interpreters();

// The words that run a program's text. The program imports nothing from the current folder, which
// may hold downloaded files; PYTHONPATH counts otherwise.
std::vector<std::string> python_command(const std::string& interpreter, const std::string& program);

}  // namespace meron::tools

// SPDX-License-Identifier: Apache-2.0
#include "tools/meron/python_helper.h"

#include <cstdlib>

namespace meron::tools {
namespace {

// `python3 -c` begins sys.path with '', the current folder. An empty entry of PYTHONPATH is the
// current folder too. (The option -P is new in Python 3.11, and ignores PYTHONPATH's entry.)
constexpr const char* kRunElsewhere =
    "import sys\n"
    "sys.path[:] = [place for place in sys.path if place]\n"
    "import os\n"
    "def elsewhere(place):\n"
    "    try:\n"
    "        return not os.path.samefile(place, '.')\n"
    "    except OSError:\n"
    "        return True\n"
    "sys.path[:] = filter(elsewhere, sys.path)\n"
    "exec(sys.argv.pop(1), {'__name__': '__main__'})\n";

}  // namespace

std::vector<std::string> python_interpreters() {
  std::vector<std::string> found;
  const char* const active = std::getenv("VIRTUAL_ENV");
  if (active != nullptr && *active != '\0') found.push_back(std::string(active) + "/bin/python3");
  found.emplace_back("python3");
  return found;
}

std::vector<std::string> python_command(const std::string& interpreter,
                                        const std::string& program) {
  return {interpreter, "-c", kRunElsewhere, program};
}

}  // namespace meron::tools

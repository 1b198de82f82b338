// SPDX-License-Identifier: Apache-2.0
#include "tools/meron/as_deepspeed.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "tools/meron/failure.h"
#include "tools/meron/python_helper.h"

namespace meron::tools {
namespace {

// `python3 -m` would import from the current folder first.
constexpr const char* kPrintFolder =
    "import runpy\n"
    "import sys\n"
    "try:\n"
    "    runpy.run_module('meron.zero.dropin', run_name='__main__')\n"
    "except ImportError as error:\n"
    "    sys.exit(str(error))\n";

std::string quoted(const std::string& word) {
  std::string text = "'";
  for (const char letter : word) {
    if (letter == '\'') text += "'\\'";  // ends the quotes, a quoted quote, and quotes again
    text += letter;
  }
  return text + "'";
}

std::string interpreter_of(const std::string& program) {
  const std::string name = program.substr(program.rfind('/') + 1);  // npos + 1 is 0
  return name.starts_with("python") ? program : "python3";
}

// The last line that a command prints; empty if it fails.
std::string last_line_of(const std::string& command) {
  FILE* output = popen(command.c_str(), "r");
  if (output == nullptr) throw system_failure("cannot start a shell", errno);
  std::string text;
  for (int letter; (letter = std::fgetc(output)) != EOF;) text += static_cast<char>(letter);
  if (pclose(output) != 0) return {};
  while (text.ends_with('\n')) text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

}  // namespace

void put_dropin_on_python_path(const std::string& program) {
  const std::string python = interpreter_of(program);
  std::string command;
  for (const std::string& word : python_command(python, kPrintFolder))
    command += quoted(word) + " ";
  const std::string folder = last_line_of(command);
  if (folder.empty()) {
    throw Failure(fmt::format("--as-deepspeed: {} cannot run meron.zero.dropin. Install the "
                              "Python package meron, and PyTorch, for that Python",
                              python),
                  kUsageError);
  }
  const char* before = std::getenv("PYTHONPATH");
  const std::string path = before != nullptr && *before != '\0' ? folder + ":" + before : folder;
  setenv("PYTHONPATH", path.c_str(), 1);
}

}  // namespace meron::tools

// SPDX-License-Identifier: Apache-2.0
#include "tools/meron/as_deepspeed.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "tools/meron/failure.h"
#include "tools/meron/unique_fd.h"

namespace meron::tools {
namespace {

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
  const std::string folder = last_line_of(quoted(python) + " -m meron.zero.dropin");
  if (folder.empty()) {
    throw Failure(fmt::format("--as-deepspeed: `{} -m meron.zero.dropin` failed. Install the "
                              "Python package meron, and PyTorch, for that Python",
                              python),
                  kUsageError);
  }
  const char* before = std::getenv("PYTHONPATH");
  const std::string path = before != nullptr && *before != '\0' ? folder + ":" + before : folder;
  setenv("PYTHONPATH", path.c_str(), 1);
}

int find_free_port() {
  const UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (!listener || bind(listener.get(), generic, size) != 0 ||
      getsockname(listener.get(), generic, &size) != 0) {
    throw system_failure("cannot find a free port", errno);
  }
  return ntohs(address.sin_port);
}

}  // namespace meron::tools

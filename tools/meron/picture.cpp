// SPDX-License-Identifier: Apache-2.0
#include "tools/meron/picture.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/meron/failure.h"
#include "tools/meron/plot.h"
#include "tools/meron/python_helper.h"
#include "tools/meron/unique_fd.h"

extern char** environ;  // NOLINT: POSIX wants it declared

namespace meron::tools {
namespace {

constexpr std::array<std::string_view, 3> kEndings = {".png", ".pdf", ".svg"};
constexpr int kWithoutMatplotlib = 3;  // plot.py's exit code

// All of `text`; fewer only if the reader is gone, which its exit status then explains.
void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t done = write(fd, text.data(), text.size());
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return;
    text.remove_prefix(static_cast<size_t>(done));
  }
}

// Starts `words`, which read from the returned pipe; returns none where there is no such program.
UniqueFd start(std::vector<std::string> words, pid_t& pid, int& failed) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw system_failure("cannot make a pipe", errno);
  const UniqueFd reading(ends[0]);
  UniqueFd writing(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, reading.get(), STDIN_FILENO);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  failed = posix_spawnp(&pid, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  return failed == 0 ? std::move(writing) : UniqueFd();
}

// The exit status of waitpid() of one python3 that draws, or none where it does not start, for
// which `failed` has the reason.
std::optional<int> try_to_draw(const std::string& python, const char* kind, const std::string& json,
                               const std::string& path, int& failed) {
  pid_t pid = 0;
  {
    std::vector<std::string> words = python_command(python, kPlot);
    words.insert(words.end(), {kind, path});
    const UniqueFd script_reads = start(std::move(words), pid, failed);
    if (failed != 0) return std::nullopt;
    write_all(script_reads.get(), json);
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) throw system_failure("cannot wait for python3", errno);
  }
  return status;
}

// `kind` as the script knows it.
void draw(const char* kind, const std::string& json, const std::string& path) {
  signal(SIGPIPE, SIG_IGN);  // a script that ends early prints the reason itself
  std::string without;       // interpreters that have no matplotlib
  int failed = 0;
  for (const std::string& python : python_interpreters()) {
    const std::optional<int> status = try_to_draw(python, kind, json, path, failed);
    if (!status) continue;
    if (WIFEXITED(*status) && WEXITSTATUS(*status) == 0) return;
    if (!WIFEXITED(*status) || WEXITSTATUS(*status) != kWithoutMatplotlib) {
      throw Failure(fmt::format("no picture in {}: what python3 said stands above", path));
    }
    without += (without.empty() ? "" : ", ") + python;
  }
  if (without.empty()) {
    throw Failure(
        fmt::format("cannot draw: python3 does not start ({}); leave --plot out, or "
                    "install python3 and matplotlib",
                    std::strerror(failed)));
  }
  throw Failure(
      fmt::format("no picture in {}: there is no matplotlib for {}. Install it (on Debian "
                  "python3-matplotlib), or activate an environment that has it",
                  path, without));
}

}  // namespace

void check_picture_name(const std::string& path) {
  for (const std::string_view ending : kEndings) {
    if (path.ends_with(ending)) return;
  }
  throw Failure(fmt::format("--plot {}: the name must end in .png, .pdf or .svg", path),
                kUsageError);
}

void draw_ranking(const std::string& json, const std::string& path) {
  draw("ranking", json, path);
}

void draw_io_bench(const std::string& json, const std::string& path) {
  draw("io-bench", json, path);
}

}  // namespace meron::tools

// SPDX-License-Identifier: Apache-2.0
#include "tools/meron/children.h"

#include <dirent.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>

namespace meron::tools {
namespace {

using Clock = std::chrono::steady_clock;

// The parent of a process, as /proc/<pid>/stat has it after the command's name; 0: it has ended.
pid_t parent_of(pid_t pid) {
  FILE* file = fopen(fmt::format("/proc/{}/stat", pid).c_str(), "re");
  if (file == nullptr) return 0;
  char text[512];
  const size_t size = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  text[size] = '\0';
  const std::string stat = text;
  const size_t name_end = stat.rfind(')');  // the name may hold anything
  int parent = 0;
  if (name_end == std::string::npos) return 0;
  return sscanf(stat.c_str() + name_end + 1, " %*c %d", &parent) == 1 ? parent : 0;
}

// For kernels without CONFIG_PROC_CHILDREN.
std::vector<pid_t> children_by_scan() {
  std::vector<pid_t> found;
  DIR* const folder = opendir("/proc");
  if (folder == nullptr) return found;
  while (const dirent* entry = readdir(folder)) {
    const pid_t pid = atoi(entry->d_name);
    if (pid > 0 && parent_of(pid) == getpid()) found.push_back(pid);
  }
  closedir(folder);
  return found;
}

}  // namespace

std::vector<pid_t> children() {
  const std::string path = fmt::format("/proc/self/task/{}/children", getpid());
  FILE* const file = fopen(path.c_str(), "re");
  if (file == nullptr) return children_by_scan();
  std::vector<pid_t> found;
  for (int pid; fscanf(file, "%d", &pid) == 1;) found.push_back(pid);
  fclose(file);
  return found;
}

std::vector<pid_t> end_children(Patience patience) {
  const auto begin = Clock::now();
  std::set<pid_t> asked;
  while (true) {
    pid_t reaped;
    while ((reaped = waitpid(-1, nullptr, WNOHANG)) > 0) continue;
    if (reaped < 0 && errno == ECHILD) return {};
    const auto waited = Clock::now() - begin;
    const std::vector<pid_t> left = children();
    if (waited > patience.total) return left;
    for (const pid_t child : left) {
      if (waited >= patience.term) {
        kill(child, SIGKILL);
      } else if (asked.insert(child).second) {
        kill(child, SIGTERM);
        kill(child, SIGCONT);  // one that is stopped would not see the other
      }
    }
    usleep(waited < patience.term ? 5'000 : 1'000);
  }
}

}  // namespace meron::tools

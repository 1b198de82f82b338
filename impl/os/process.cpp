// SPDX-License-Identifier: Apache-2.0
#include "os/process.h"

#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <string_view>

#include "os/file.h"
#include "os/poll.h"
#include "os/system_error.h"

namespace meron {
namespace {

#ifndef SYS_pidfd_open
constexpr long SYS_pidfd_open = 434;  // the same on every architecture
#endif

struct ProcStat {
  char state = '?';
  uint64_t start_time = 0;
};

Result<ProcStat> read_stat(int32_t pid) {
  MERON_ASSIGN(const std::string text, read_file(fmt::format("/proc/{}/stat", pid), 4096));
  // The second field is the program's name in parentheses, which may itself hold spaces and
  // parentheses: what follows the last one begins with field 3, the state. Field 22 is the start.
  std::string_view rest = text;
  const size_t name_end = rest.rfind(')');
  if (name_end == std::string_view::npos || name_end + 2 >= rest.size()) {
    return Error(MERON_E_IO, fmt::format("/proc/{}/stat is not understood", pid));
  }
  rest.remove_prefix(name_end + 2);
  ProcStat stat{.state = rest.front()};
  for (int field = 3; field < 22; ++field) {
    rest.remove_prefix(std::min(rest.size(), rest.find(' ')));
    rest.remove_prefix(std::min<size_t>(rest.size(), 1));
  }
  if (std::from_chars(rest.data(), rest.data() + rest.size(), stat.start_time).ec != std::errc()) {
    return Error(MERON_E_IO, fmt::format("/proc/{}/stat is not understood", pid));
  }
  return stat;
}

}  // namespace

int32_t process_id() {
  return ::getpid();
}
uint32_t effective_uid() {
  return ::geteuid();
}

std::vector<int> allowed_cpus() {
  std::vector<int> cpus;
  // The kernel refuses (EINVAL) a set that is smaller than its own.
  for (int size = 1024; size <= 1 << 20; size *= 4) {
    cpu_set_t* set = CPU_ALLOC(size);
    if (set == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(size);
    CPU_ZERO_S(bytes, set);
    const bool done = ::sched_getaffinity(0, bytes, set) == 0;
    for (int cpu = 0; done && cpu < size; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, set)) cpus.push_back(cpu);
    }
    CPU_FREE(set);
    if (done || errno != EINVAL) break;
  }
  return cpus;
}

int cpu_count() {
  return std::max<int>(1, static_cast<int>(allowed_cpus().size()));
}

Result<uint64_t> process_start_time(int32_t pid) {
  MERON_ASSIGN(const ProcStat stat, read_stat(pid));
  return stat.start_time;
}

ProcessWatch::ProcessWatch(int32_t pid, uint64_t start_time) : pid_(pid), start_time_(start_time) {
  if (pid <= 0) {
    reason_ = "the process is in a pid namespace that is invisible from this one";
    return;
  }
  pidfd_.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd_.valid()) {
    const int error = errno;
    if (error == ESRCH) {
      ended_ = true;
      return;
    }
    reason_ = fmt::format("pidfd_open: {}", errno_text(error));
  }
  // The process that the descriptor holds could be a later one with the same pid. If it has ended
  // by now, the descriptor reports it.
  if (const auto stat = read_stat(pid); stat.ok()) {
    if (start_time_ == 0) start_time_ = stat->start_time;
    if (stat->start_time != start_time_) ended_ = true;
  }
}

bool ProcessWatch::alive() {
  if (ended_) return false;
  if (pidfd_.valid()) {
    pollfd entry{.fd = pidfd_.get(), .events = POLLIN, .revents = 0};
    ended_ = ::poll(&entry, 1, 0) > 0;
  } else if (pid_ > 0) {
    ended_ = !alive_by_proc();
  }
  return !ended_;
}

bool ProcessWatch::ended(Deadline deadline) {
  while (alive()) {
    if (deadline.passed()) return false;
    // Without a pidfd (-1) nothing wakes the wait: look again every few milliseconds.
    const Deadline look = pidfd_.valid() ? deadline : Deadline::after_ms(5);
    (void)wait_ready(pidfd_.get(), POLLIN, look.ns < deadline.ns ? look : deadline).ok();
  }
  return true;
}

bool ProcessWatch::alive_by_proc() const {
  // EPERM means that it exists and belongs to another user.
  if (::kill(pid_, 0) != 0 && errno == ESRCH) return false;
  const auto stat = read_stat(pid_);
  if (!stat.ok()) return true;  // /proc is missing or hides it: kill() has the last word
  return stat->state != 'Z' && stat->state != 'X' && stat->start_time == start_time_;
}

}  // namespace meron

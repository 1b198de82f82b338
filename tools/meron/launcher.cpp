// SPDX-License-Identifier: Apache-2.0
#include "tools/meron/launcher.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>

#include "tools/meron/children.h"
#include "tools/meron/failure.h"

namespace meron::tools {
namespace {

constexpr std::array kForwardedSignals = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
// For what is left when one of the two processes was killed.
constexpr Patience kAtOnce{std::chrono::milliseconds(0), std::chrono::seconds(60)};

// Passes signals on until the supervisor ends; its wait status.
int wait_for_supervisor(pid_t supervisor, const UniqueFd& signals, const UniqueFd& to_supervisor) {
  while (true) {
    signalfd_siginfo received;
    while (read(signals.get(), &received, sizeof received) ==
           static_cast<ssize_t>(sizeof received)) {
      if (received.ssi_signo == SIGCHLD) continue;
      const ReceivedSignal message{static_cast<int>(received.ssi_signo),
                                   received.ssi_code == SI_KERNEL,
                                   std::chrono::steady_clock::now()};
      [[maybe_unused]] const ssize_t written =
          write(to_supervisor.get(), &message, sizeof message);  // it may just have ended
    }
    int wait_status;
    for (pid_t pid; (pid = waitpid(-1, &wait_status, WNOHANG)) > 0;) {
      if (pid == supervisor) return wait_status;
    }
    pollfd event{signals.get(), POLLIN, 0};
    poll(&event, 1, -1);
  }
}

// Exit code of the launcher. Kills the children that a killed supervisor left.
int code_of(pid_t supervisor, int wait_status) {
  if (!WIFSIGNALED(wait_status)) return WEXITSTATUS(wait_status);
  end_children(kAtOnce);
  fmt::print(stderr,
             "meron run: the process that supervises the ranks (pid {}) was killed by SIG{}, so "
             "the ranks were killed too\n",
             supervisor, sigabbrev_np(WTERMSIG(wait_status)));
  return kKilledBySignal + WTERMSIG(wait_status);
}

// Stands between launcher and supervisor, in a session of its own: signals to the process group of
// the job, KILL and STOP among them, do not reach it. The supervisor and the ranks stay in the
// launcher's group. (A parent in another group of the same session would be what keeps that group
// from being orphaned, and as it ends the kernel sends HUP to a group that has stopped members.)
int guard(pid_t supervisor, const UniqueFd& signals, const UniqueFd& from_launcher) {
  setsid();
  while (true) {
    signalfd_siginfo received;
    while (read(signals.get(), &received, sizeof received) > 0) continue;
    int wait_status;
    for (pid_t pid; (pid = waitpid(-1, &wait_status, WNOHANG)) > 0;) {
      if (pid == supervisor) return code_of(supervisor, wait_status);
    }
    pollfd events[] = {{signals.get(), POLLIN, 0}, {from_launcher.get(), 0, 0}};
    poll(events, 2, -1);
    if ((events[1].revents & POLLHUP) != 0) {  // the launcher was killed
      end_children(kAtOnce);
      return kKilledBySignal + SIGKILL;
    }
  }
}

}  // namespace

std::optional<ReceivedSignal> Launcher::next() {
  ReceivedSignal message;
  const ssize_t size = read(signals_.get(), &message, sizeof message);
  if (size != static_cast<ssize_t>(sizeof message)) return {};
  return message;
}

bool Launcher::ended() const {
  pollfd event{signals_.get(), POLLIN, 0};
  return poll(&event, 1, 0) > 0 && (event.revents & POLLHUP) != 0;
}

int run_supervised(const std::function<int(Launcher&)>& supervise) {
  // An ignored SIGCHLD is inherited, and would hide the exit statuses of the ranks.
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  sigaction(SIGCHLD, &standard, nullptr);

  sigset_t taken;
  sigemptyset(&taken);
  sigaddset(&taken, SIGCHLD);
  for (const int signal : kForwardedSignals) sigaddset(&taken, signal);
  sigset_t blocked = taken;
  sigaddset(&blocked, SIGPIPE);  // write() reports a reader that is gone
  sigaddset(&blocked, SIGTTOU);  // the supervisor prints from outside of the foreground group
  sigset_t outer_mask;
  sigprocmask(SIG_BLOCK, &blocked, &outer_mask);
  UniqueFd signals(signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals) throw system_failure("cannot watch signals", errno);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) throw system_failure("cannot make a pipe", errno);
  UniqueFd from_launcher(ends[0]);
  UniqueFd to_supervisor(ends[1]);

  const pid_t process_group = getpgrp();
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // both inherit the children of those that end
  const pid_t supervisor = fork();
  if (supervisor < 0) throw system_failure("cannot start the process that supervises ranks", errno);
  if (supervisor == 0) {
    to_supervisor.reset();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    const pid_t inner = fork();
    if (inner < 0) throw system_failure("cannot start the process that supervises ranks", errno);
    if (inner > 0) return guard(inner, signals, from_launcher);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    Launcher launcher(std::move(from_launcher), process_group, outer_mask);
    const int code = supervise(launcher);
    if (launcher.ended()) end_children(kAtOnce);
    return code;
  }
  from_launcher.reset();
  return code_of(supervisor, wait_for_supervisor(supervisor, signals, to_supervisor));
}

}  // namespace meron::tools

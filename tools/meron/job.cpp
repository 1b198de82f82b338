// SPDX-License-Identifier: Apache-2.0
#include "tools/meron/job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "os/job_board.h"
#include "tools/meron/children.h"
#include "tools/meron/failure.h"
#include "tools/meron/first_failure.h"
#include "tools/meron/launcher.h"
#include "tools/meron/merged_output.h"
#include "tools/meron/rank_process.h"
#include "tools/meron/reserved_port.h"
#include "tools/meron/text.h"
#include "tools/meron/unique_fd.h"

namespace meron::tools {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::seconds;

constexpr seconds kFromTermToKill{5};
// For what ranks have started and left behind when they ended.
constexpr Patience kForLeftovers{seconds(1), seconds(5)};
// A signal of the terminal may be as much older than the launcher's word of it.
constexpr std::chrono::milliseconds kDelayOfSignals{20};
constexpr int kReaderPatienceMs = 1'000;
// How long the rank that an ended one blames may take to end, before the latter is named.
constexpr seconds kCulpritPatience{2};

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal);
}

int exit_code_of(int wait_status) {
  return WIFSIGNALED(wait_status) ? kKilledBySignal + WTERMSIG(wait_status)
                                  : WEXITSTATUS(wait_status);
}

std::string outcome_of(int wait_status, bool several = false) {
  if (!WIFSIGNALED(wait_status))
    return fmt::format("exited with code {}", WEXITSTATUS(wait_status));
  return fmt::format("{} killed by {}{}", several ? "were" : "was",
                     signal_name(WTERMSIG(wait_status)),
                     WCOREDUMP(wait_status) ? " (core dumped)" : "");
}

class Job {
 public:
  Job(const JobOptions& options, Launcher& launcher) : options_(options), launcher_(launcher) {}

  int run();

 private:
  // Phases after the failure of a rank. Each names the limit after which the next one begins.
  enum class Phase {
    kRunning,      // all is well; until the job's timeout, if it has one
    kGrace,        // the others may end by themselves; options_.grace
    kTerminating,  // they have got SIGTERM; kFromTermToKill
    kKilling,      // they have got SIGKILL
  };

  void watch_children();
  void start();
  void wait_for_event();
  void on_signals();
  void forward(const ReceivedSignal& received);
  void reap();
  void end_leftovers();
  void on_rank_end(RankProcess& rank, int wait_status);
  void name_first_failure(bool now);
  void on_deadline();
  void terminate();
  void kill_rest();
  void send_to_running(int signal);
  void pass_output(RankProcess& rank, UniqueFd& from, MergedOutput& to);
  void report_others();
  void say(const std::string& message);

  bool has_work() const;
  size_t running() const;
  std::string running_names() const;

  const JobOptions& options_;
  Launcher& launcher_;
  std::unique_ptr<JobBoard> board_;
  ReservedPort port_;
  std::vector<RankProcess> ranks_;
  UniqueFd child_events_;
  // Signals of the terminal from before may have missed some ranks.
  Clock::time_point all_started_;
  Phase phase_ = Phase::kRunning;
  Clock::time_point deadline_ = Clock::time_point::max();
  // Who failed first, as far as is known while ranks end, and how the blame is followed to there.
  const RankProcess* first_ended_ = nullptr;
  const RankProcess* first_failed_ = nullptr;
  Clock::time_point naming_deadline_ = Clock::time_point::max();
  bool timed_out_ = false;
  bool interrupted_after_end_ = false;
  MergedOutput output_{STDOUT_FILENO};
  MergedOutput errors_{STDERR_FILENO};
};

int Job::run() {
  watch_children();
  start();
  on_signals();  // what arrived while ranks were started: a rank may have ended already
  reap();
  while (has_work()) {
    if (launcher_.ended()) return kRuntimeError;  // run_supervised() kills what is left
    wait_for_event();
    on_signals();
    reap();
    if (Clock::now() >= naming_deadline_) name_first_failure(true);
    if (Clock::now() >= deadline_) on_deadline();
  }
  if (timed_out_) return kTimedOut;
  return first_failed_ == nullptr ? kSuccess : exit_code_of(first_failed_->wait_status);
}

void Job::watch_children() {
  sigset_t taken;
  sigemptyset(&taken);
  sigaddset(&taken, SIGCHLD);  // blocked by run_supervised()
  child_events_ = UniqueFd(signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!child_events_) throw system_failure("cannot watch the ranks", errno);
}

// The ranks are in the launcher's process group, so that a terminal treats the job as one: it may
// read, Ctrl-C and Ctrl-Z reach all of it.
void Job::start() {
  auto board = JobBoard::create(options_.ranks);
  if (!board.ok())
    throw Failure("cannot share memory with the ranks: " + board.error().info().what);
  board_ = std::move(*board);
  RankCommand command;
  command.words = options_.command;
  command.board_fd = board_->fd();
  command.world_size = options_.ranks;
  command.token = make_token();
  command.capture_output = options_.tag;
  port_ = reserve_port();
  command.master_port = port_.number;
  if (port_.number == 0) {
    say("no free TCP port was found, so the ranks get no MASTER_ADDR and MASTER_PORT: "
        "torch.distributed cannot start");
  }
  command.signal_mask = launcher_.outer_mask();
  command.process_group = launcher_.process_group();
  try {
    ranks_.reserve(static_cast<size_t>(options_.ranks));
    for (int rank = 0; rank < options_.ranks && !launcher_.ended(); ++rank) {
      ranks_.push_back(start_rank(command, rank));
    }
  } catch (...) {
    send_to_running(SIGKILL);
    end_children(kForLeftovers);
    throw;
  }
  all_started_ = Clock::now();
  if (options_.timeout) deadline_ = all_started_ + *options_.timeout;
}

bool Job::has_work() const {
  if (running() > 0) return true;
  if (interrupted_after_end_) return false;
  const auto open = [](const RankProcess& rank) { return rank.output || rank.errors; };
  return output_.has_pending() || errors_.has_pending() ||
         std::any_of(ranks_.begin(), ranks_.end(), open);
}

void Job::wait_for_event() {
  std::vector<pollfd> events = {{child_events_.get(), POLLIN, 0}, {launcher_.fd(), POLLIN, 0}};
  std::vector<std::function<void()>> actions = {[] {}, [] {}};
  for (MergedOutput* to : {&output_, &errors_}) {
    if (!to->has_pending()) continue;
    events.push_back({to->fd(), POLLOUT, 0});
    actions.push_back([to] { to->write_some(); });
  }
  for (RankProcess& rank : ranks_) {
    for (auto [from, to] : {std::pair{&rank.output, &output_}, {&rank.errors, &errors_}}) {
      if (to->reader_is_gone()) from->reset();  // the rank notices when it prints again
      if (!*from || to->is_full()) continue;
      events.push_back({from->get(), POLLIN, 0});
      actions.push_back([this, &rank, from = from, to = to] { pass_output(rank, *from, *to); });
    }
  }
  int timeout_ms = -1;
  if (const auto next = std::min(deadline_, naming_deadline_); next != Clock::time_point::max()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now());
    timeout_ms = static_cast<int>(std::clamp<int64_t>(left.count(), 0, 3'600'000));
  }
  if (poll(events.data(), events.size(), timeout_ms) <= 0) return;
  for (size_t i = 0; i < events.size(); ++i) {
    if (events[i].revents != 0) actions[i]();
  }
}

void Job::pass_output(RankProcess& rank, UniqueFd& from, MergedOutput& to) {
  std::array<char, 65'536> buffer;
  const ssize_t size = read(from.get(), buffer.data(), buffer.size());
  if (size > 0) {
    to.receive(rank.rank, {buffer.data(), static_cast<size_t>(size)});
  } else if (size == 0 || errno != EINTR) {
    to.end(rank.rank);
    from.reset();
  }
}

void Job::on_signals() {
  signalfd_siginfo of_child;
  while (read(child_events_.get(), &of_child, sizeof of_child) > 0) continue;
  while (const auto received = launcher_.next()) {
    if (running() == 0) {
      interrupted_after_end_ = true;  // only a reader that does not read keeps us here
    } else {
      forward(*received);
    }
  }
}

void Job::forward(const ReceivedSignal& received) {
  // The terminal's signals go to its whole foreground group, so the ranks have them already, but
  // for those that moved to a group of their own.
  const bool ranks_have_it =
      received.from_terminal && received.time > all_started_ + kDelayOfSignals;
  for (const RankProcess& rank : ranks_) {
    if (!rank.running) continue;
    if (ranks_have_it && getpgid(rank.pid) == launcher_.process_group()) continue;
    kill(rank.pid, received.signal);
  }
}

void Job::reap() {
  const bool were_running = running() > 0;
  int wait_status;
  for (pid_t pid; (pid = waitpid(-1, &wait_status, WNOHANG)) > 0;) {
    const auto rank = std::find_if(ranks_.begin(), ranks_.end(), [&](const RankProcess& candidate) {
      return candidate.running && candidate.pid == pid;
    });
    if (rank != ranks_.end()) on_rank_end(*rank, wait_status);
  }
  if (were_running && running() == 0) {
    deadline_ = Clock::time_point::max();
    name_first_failure(true);
    report_others();
    end_leftovers();
  }
}

void Job::end_leftovers() {
  const std::vector<pid_t> left = end_children(kForLeftovers);
  if (left.empty()) return;
  say(fmt::format("processes that ranks have started are left and cannot be killed: pid {}",
                  fmt::join(left, ", ")));
}

void Job::on_rank_end(RankProcess& rank, int wait_status) {
  rank.running = false;
  rank.wait_status = wait_status;
  board_->set_ended(rank.rank, wait_status);
  if (wait_status != 0 && phase_ == Phase::kRunning) {
    first_ended_ = &rank;
    phase_ = Phase::kGrace;
    deadline_ = Clock::now() + options_.grace;
    naming_deadline_ = Clock::now() + kCulpritPatience;
  }
  name_first_failure(false);
}

// Of a rank that raised, the peers hear before its process has ended, and may end first.
void Job::name_first_failure(bool now) {
  if (first_ended_ == nullptr || first_failed_ != nullptr) return;
  const Cause cause = first_failure(ranks_, *board_, first_ended_->rank);
  if (cause.waits_for && !now) return;
  naming_deadline_ = Clock::time_point::max();
  first_failed_ = &ranks_[static_cast<size_t>(cause.rank)];
  const int wait_status = first_failed_->wait_status;
  std::string why;
  if (cause.waits_for)
    why = fmt::format(", for what rank {} did, which still runs", *cause.waits_for);
  if (WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGKILL) {
    why = " (if you did not, perhaps the kernel did for want of memory: see dmesg)";
  }
  say(fmt::format("rank {} (pid {}) {}{}", first_failed_->rank, first_failed_->pid,
                  outcome_of(wait_status), why));
}

void Job::on_deadline() {
  switch (phase_) {
    case Phase::kRunning:
      timed_out_ = true;
      say(fmt::format("the job did not end within {}: sending SIGTERM to {}",
                      readable_seconds(*options_.timeout), running_names()));
      return terminate();
    case Phase::kGrace:
      name_first_failure(true);
      say(fmt::format("{} did not end within {}: sending SIGTERM", running_names(),
                      readable_seconds(options_.grace)));
      return terminate();
    case Phase::kTerminating:
      say(fmt::format("{} did not end within {} of SIGTERM: sending SIGKILL", running_names(),
                      readable_seconds(kFromTermToKill)));
      return kill_rest();
    case Phase::kKilling:
      return;
  }
}

void Job::terminate() {
  phase_ = Phase::kTerminating;
  deadline_ = Clock::now() + kFromTermToKill;
  send_to_running(SIGTERM);
  send_to_running(SIGCONT);  // one that is stopped would not see the other
}

void Job::kill_rest() {
  phase_ = Phase::kKilling;
  deadline_ = Clock::time_point::max();
  send_to_running(SIGKILL);
}

// A rank that has ended but was not reaped keeps its pid, so a signal never goes to a stranger.
void Job::send_to_running(int signal) {
  for (const RankProcess& rank : ranks_) {
    if (rank.running) kill(rank.pid, signal);
  }
}

// Reports the other ranks in one line after the first failure.
void Job::report_others() {
  if (first_failed_ == nullptr || ranks_.size() == 1) return;
  std::map<int, std::vector<int>> by_outcome;
  for (const RankProcess& rank : ranks_) {
    if (&rank != first_failed_) by_outcome[rank.wait_status].push_back(rank.rank);
  }
  std::string text;
  for (const auto& [wait_status, ranks] : by_outcome) {
    text += fmt::format("{}{} {}", text.empty() ? "" : "; ", rank_names(ranks),
                        outcome_of(wait_status, ranks.size() > 1));
  }
  say("of the others, " + text);
}

void Job::say(const std::string& message) {
  const std::string line = "meron run: " + message;
  if (options_.tag) {
    errors_.add_line(line);  // in order with, and not inside of, the lines of the ranks
    return;
  }
  // A reader that does not read must not hold the job's end.
  pollfd event{STDERR_FILENO, POLLOUT, 0};
  if (poll(&event, 1, kReaderPatienceMs) > 0) fmt::print(stderr, "{}\n", line);
}

size_t Job::running() const {
  return static_cast<size_t>(std::count_if(ranks_.begin(), ranks_.end(),
                                           [](const RankProcess& rank) { return rank.running; }));
}

std::string Job::running_names() const {
  std::vector<int> names;
  for (const RankProcess& rank : ranks_) {
    if (rank.running) names.push_back(rank.rank);
  }
  return rank_names(names);
}

}  // namespace

int run_job(const JobOptions& options) {
  return run_supervised([&](Launcher& launcher) { return Job(options, launcher).run(); });
}

}  // namespace meron::tools

// SPDX-License-Identifier: Apache-2.0
// `meron run`: its options.
#include <fmt/format.h>

#include <memory>

#include "tools/meron/as_deepspeed.h"
#include "tools/meron/commands.h"
#include "tools/meron/failure.h"
#include "tools/meron/job.h"
#include "tools/meron/text.h"

namespace meron::tools {
namespace {

constexpr int64_t kMostRanks = 4096;  // what a context accepts as world size
constexpr double kLongest = 1e9;      // seconds; fits every clock

constexpr const char* kRunFooter =
    R"(Each rank finds its place in MERON_RANK, MERON_WORLD_SIZE, MERON_LOCAL_RANK and
MERON_LOCAL_WORLD_SIZE, and the job's secret token in an open file whose descriptor is MERON_TOKEN_FD:
meron_context_open reads them by itself. MERON_BOARD_FD is the descriptor of shared memory in which
the launcher records which ranks have ended, and ranks record which rank an error blames. Programs
for torchrun find its variables: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR
(127.0.0.1) and MASTER_PORT (a free port that the launcher keeps from other programs). If
OMP_NUM_THREADS is not set, each rank gets its share of the cores that the launcher may use. Rank 0
reads the launcher's standard input, the others have none. All ranks write to the launcher's standard
output and error; with --tag through pipes, which most programs buffer (in Python, set
PYTHONUNBUFFERED=1).

With --as-deepspeed, PYTHONPATH begins with the folder that `python3 -m meron.zero.dropin` prints, so
that Trainer, accelerate, TRL and scripts for DeepSpeed use Meron.

INT, TERM, HUP, QUIT, USR1 and USR2 are passed on to every rank, once. A signal that is ignored when
the launcher starts, as HUP is under nohup, is ignored by the ranks too and ends nothing. If a rank is
killed or exits with a code other than 0, the others have the grace period to end by themselves (their
calls return an error that names the dead rank), then get TERM, and KILL 5 seconds later. The
launcher's exit code is that of the rank that failed first, 128 + N for signal N. A rank that ends
with an error of Meron that blames another rank failed first only if the other does not fail within 2
seconds. When the launcher returns, no process of the job is left: processes that ranks started and
left behind get TERM, and KILL a second later. If the launcher itself is killed, all processes of the
job are killed with it, in whatever session or process group they are.

Examples:
  meron run -n 4 -- python3 train.py --epochs 3
  meron run -n 2 --tag ./train           each line of output begins with [rank]
  meron run -n 2 --as-deepspeed python3 train.py
  meron run -n 2 --timeout 60 ./test     exit code 124 if that takes more than a minute)";

class Formatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override {
    return "\nUsage: meron run -n N [OPTIONS] [--] PROGRAM [ARGUMENTS...]\n";
  }
};

struct RunOptions {
  int64_t ranks = 0;
  double grace = 5;
  double timeout = 0;
  bool tag = false;
  bool as_deepspeed = false;
};

std::chrono::nanoseconds to_nanoseconds(const char* option, double value) {
  if (!(value >= 0 && value <= kLongest)) {
    throw Failure(
        fmt::format("{} {} is no number of seconds from 0 to {:g}", option, value, kLongest),
        kUsageError);
  }
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(value));
}

// The program and its arguments: from the first word that is no option, or after the first "--",
// which stays an argument of the program if that was named before it.
std::vector<std::string> read_command(const CLI::App& app, std::span<char*> after_dashes) {
  std::vector<std::string> command = app.remaining();
  if (!command.empty() && command[0].starts_with("-")) {
    const std::string name = command[0].substr(0, command[0].find('='));
    std::vector<std::string> known;
    for (const CLI::Option* const option : app.get_options()) {
      for (const std::string& each : option->get_lnames()) known.push_back("--" + each);
    }
    const std::string near = nearest_word(name, known);
    throw Failure(fmt::format("unknown option {}{} (meron run --help lists them)", name,
                              near.empty() ? "" : fmt::format(": did you mean {}?", near)),
                  kUsageError);
  }
  if (command.empty() && !after_dashes.empty()) after_dashes = after_dashes.subspan(1);
  command.insert(command.end(), after_dashes.begin(), after_dashes.end());
  if (command.empty() || command[0].empty()) {
    throw Failure("which program shall run? For example: meron run -n 2 -- python3 train.py",
                  kUsageError);
  }
  return command;
}

int run(const RunOptions& options, const CLI::App& app, std::span<char*> after_dashes) {
  JobOptions job;
  job.command = read_command(app, after_dashes);
  if (options.ranks < 1 || options.ranks > kMostRanks) {
    throw Failure(fmt::format("-n {} is not possible: give a number of ranks from 1 to {}",
                              options.ranks, kMostRanks),
                  kUsageError);
  }
  job.ranks = static_cast<int>(options.ranks);
  job.grace = to_nanoseconds("--grace", options.grace);
  if (app.count("--timeout") > 0) job.timeout = to_nanoseconds("--timeout", options.timeout);
  job.tag = options.tag;
  if (options.as_deepspeed) put_dropin_on_python_path(job.command[0]);
  return run_job(job);
}

}  // namespace

Subcommand add_run(CLI::App& parent, std::span<char*> after_dashes) {
  CLI::App* app = parent.add_subcommand("run", "Start the ranks of a program on this host");
  app->footer(kRunFooter);
  app->formatter(std::make_shared<Formatter>());
  app->prefix_command();  // what follows the program's name is the program's
  auto options = std::make_shared<RunOptions>();
  app->add_option("-n,--ranks", options->ranks, "how many ranks")->required()->type_name("N");
  app->add_option("--grace", options->grace,
                  "how long the others may go on after a rank failed (5)")
      ->type_name("SECONDS");
  app->add_option("--timeout", options->timeout, "end the job when it takes longer")
      ->type_name("SECONDS");
  app->add_flag("--tag", options->tag, "mark each line of output with its rank");
  app->add_flag("--as-deepspeed", options->as_deepspeed,
                "let `import deepspeed` of Python mean Meron");
  return {app, [options, app, after_dashes] { return run(*options, *app, after_dashes); }};
}

}  // namespace meron::tools

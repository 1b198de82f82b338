// SPDX-License-Identifier: Apache-2.0
// Runs the conformance cases through the C interface. ../README.md says how it is called.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <thread>

#include "operations.h"

namespace conformance {
namespace {

struct Options {
  std::string cases;
  std::string only;
  Setup setup;
};

// Writes a complete line at once: ranks that are processes share the output.
void say(const std::string& line) {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  std::string one = line;
  std::replace(one.begin(), one.end(), '\n', ' ');
  one += '\n';
  std::fwrite(one.data(), 1, one.size(), stdout);
  std::fflush(stdout);
}

// Returns the error, or "".
std::string run_case(const Setup& setup, const Case& one, const std::string& plan) {
  Session session(setup, one.name, plan);
  for (const Statement& statement : one.statements) {
    const std::string where = "rank " + std::to_string(setup.rank) + ": line " +
                              std::to_string(statement.line) + ": " + statement.operation + ": ";
    try {
      execute(session, statement);
    } catch (const CheckFailed& failed) {
      return where + failed.what;
    } catch (const Malformed& malformed) {
      return where + malformed.what;
    } catch (const std::exception& error) {
      return where + error.what();
    }
  }
  return "";
}

// All cases on one rank; whether all went well.
bool run_rank(const Options& options, const std::vector<Case>& cases, int rank) {
  Setup setup = options.setup;
  setup.rank = rank;
  bool well = true;
  for (const Case& one : cases) {
    if (!contains(one.transports, setup.transport) ||
        !contains(one.ranks, std::to_string(setup.world)) ||
        (!options.only.empty() && one.name != options.only)) {
      continue;
    }
    for (const std::string& plan : one.plans) {
      const std::string title = one.name + " " + plan;
      if (rank == 0) say("# " + title);
      const std::string wrong = run_case(setup, one, plan);
      if (!wrong.empty()) {
        say("not ok " + title + ": " + wrong);
        well = false;
      } else if (rank == 0) {
        say("ok " + title);
      }
    }
  }
  return well;
}

int from_environment(const char* name) {
  const char* const text = std::getenv(name);
  if (text == nullptr) throw Malformed{std::string(name) + " is not set: use `meron run`"};
  return static_cast<int>(to_integer(text));
}

Options options_of(const std::vector<std::string>& words) {
  Options options;
  for (size_t i = 0; i < words.size(); ++i) {
    const auto value = [&]() -> const std::string& {
      if (++i == words.size()) throw Malformed{words.back() + " needs a value"};
      return words[i];
    };
    if (words[i] == "--transport") {
      options.setup.transport = value();
    } else if (words[i] == "--ranks") {
      options.setup.world = static_cast<int>(to_integer(value()));
    } else if (words[i] == "--job") {
      options.setup.job = value();
    } else if (words[i] == "--only") {
      options.only = value();
    } else if (words[i] == "--print") {
      options.setup.print = true;
    } else if (options.cases.empty()) {
      options.cases = words[i];
    } else {
      throw Malformed{"unknown argument " + words[i]};
    }
  }
  if (options.cases.empty()) throw Malformed{"which cases?"};
  return options;
}

int run(Options options) {
  const std::vector<Case> cases = read_cases(options.cases);
  if (options.setup.transport == "shm") {
    options.setup.world = from_environment("MERON_WORLD_SIZE");
    return run_rank(options, cases, from_environment("MERON_RANK")) ? 0 : 1;
  }
  std::atomic<bool> well{true};
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < options.setup.world; ++rank) {
    ranks.emplace_back([&, rank] {
      if (!run_rank(options, cases, rank)) well = false;
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return well ? 0 : 1;
}

}  // namespace
}  // namespace conformance

int main(int argc, char** argv) {
  try {
    return conformance::run(conformance::options_of({argv + 1, argv + argc}));
  } catch (const conformance::Malformed& malformed) {
    std::fprintf(stderr,
                 "%s\n"
                 "usage: %s cases.txt --transport self|local|shm|custom [--ranks N] [--job TEXT] "
                 "[--only CASE] [--print]\n",
                 malformed.what.c_str(), argv[0]);
    return 2;
  }
}

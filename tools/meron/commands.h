// SPDX-License-Identifier: Apache-2.0
// The subcommands, one source file each. add_<name>() declares a subcommand with its options and
// returns what to do when it was chosen; the result is the exit code, and a Failure may be thrown.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <span>

namespace meron::tools {

struct Subcommand {
  CLI::App* app = nullptr;
  std::function<int()> run;
};

// `after_dashes`: the words that follow the first "--", with it, if there is one. CLI11 does not
// see them, because it would let the words of the program to run be options of ours again.
Subcommand add_run(CLI::App& parent, std::span<char*> after_dashes);
Subcommand add_checkpoint(CLI::App& parent);
Subcommand add_info(CLI::App& parent);
Subcommand add_plan(CLI::App& parent);
Subcommand add_io_bench(CLI::App& parent);

}  // namespace meron::tools

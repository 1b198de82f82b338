// SPDX-License-Identifier: Apache-2.0
// The command `meron`.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "meron/base.h"
#include "tools/meron/commands.h"
#include "tools/meron/failure.h"
#include "tools/meron/text.h"

namespace meron::tools {
namespace {

constexpr const char* kFooter = R"(Examples:
  meron run -n 2 -- python3 train.py     start two ranks of a program on this host
  meron info                             what this host and this build offer
  meron plan --parameters 7B --layers 32 --dtype bf16 -n 8 --compare
                                         what each plan would cost, before anything runs
  meron io-bench /local                  what a drive gives, and the best settings for it
  meron checkpoint inspect runs/a        what the newest checkpoint has

`meron SUBCOMMAND --help` explains each. Exit codes: 0 success, 1 error, 2 wrong usage; `meron run`
exits with the code of the first rank that failed.)";

// The innermost subcommand that was reached, and its words: "checkpoint inspect ".
CLI::App* innermost(CLI::App& app, std::string& words) {
  CLI::App* reached = &app;
  while (!reached->get_subcommands().empty()) {
    reached = reached->get_subcommands().front();
    words += reached->get_name() + " ";
  }
  return reached;
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* const option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back(fmt::format("--{}", name));
  }
  return names;
}

std::vector<std::string> subcommand_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* const each : app.get_subcommands({})) names.push_back(each->get_name());
  return names;
}

std::string question(const std::string& word, const std::vector<std::string>& known) {
  const std::string near = nearest_word(word, known);
  return near.empty() ? "" : fmt::format(": did you mean {}?", near);
}

// Options of other launchers that mean -n.
constexpr std::string_view kRankOptions[] = {"-np", "--np", "--nproc-per-node", "--nproc_per_node",
                                             "--num_gpus"};

// Describes a wrong value, as in "-n two: two is no number".
std::string words_of_conversion(const std::string& what, const std::vector<std::string>& words) {
  constexpr std::string_view kBegin = "Could not convert: ";
  const size_t equals = what.find(" = ");
  if (!what.starts_with(kBegin) || equals == std::string::npos) return what;
  const std::string option = what.substr(kBegin.size(), equals - kBegin.size());
  const std::string value = what.substr(equals + 3);
  for (const std::string& word : words) {  // "-np" is -n with the value "p"
    if (word.size() < 3 || word[0] != '-' || word[1] == '-' || word.substr(2) != value) continue;
    return fmt::format("there is no option {}: did you mean {}, for example {} 2?", word,
                       word.substr(0, 2), word.substr(0, 2));
  }
  return fmt::format("{} {} is not possible: {} is no number", option, value, value);
}

int complain(CLI::App& app, const CLI::ParseError& error, const std::vector<std::string>& words) {
  std::string path;
  CLI::App* const reached = innermost(app, path);
  const size_t depth = static_cast<size_t>(std::count(path.begin(), path.end(), ' '));
  const std::vector<std::string> known = subcommand_names(*reached);
  if (!known.empty() && words.size() > depth && words[depth][0] != '-') {
    fmt::print(stderr, "meron: there is no subcommand '{}{}'{}\nThere are {}.\n", path,
               words[depth], question(words[depth], known), fmt::join(known, ", "));
    return kUsageError;
  }
  std::string what = words_of_conversion(error.what(), words);
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {
    if (path == "run ") what += ", for example: meron run -n 2 -- python3 train.py";
    for (const std::string& word : reached->remaining()) {
      const std::string name = word.substr(0, word.find('='));
      const auto known = std::find(std::begin(kRankOptions), std::end(kRankOptions), name);
      if (known != std::end(kRankOptions)) {
        what = fmt::format("there is no option {}: did you mean -n, for example -n 2?", name);
      }
    }
  }
  const auto* const extras = dynamic_cast<const CLI::ExtrasError*>(&error);
  if (extras != nullptr) {
    for (const std::string& word : reached->remaining()) {
      if (!word.starts_with("--")) continue;
      const std::string name = word.substr(0, word.find('='));
      what = fmt::format("there is no option {}{}", name, question(name, option_names(*reached)));
      break;
    }
  }
  fmt::print(stderr, "meron: {}\nmeron {}--help explains the options.\n", what, path);
  return kUsageError;
}

int main_with_exceptions(int argc, char** argv) {
  CLI::App app{
      "Meron partitions the parameters, gradients and optimizer states of a model over "
      "ranks of one host."};
  app.name("meron");
  app.footer(kFooter);
  app.set_version_flag("--version", fmt::format("meron {}", meron_version_string()));
  app.require_subcommand(1);
  app.get_formatter()->column_width(30);

  std::span<char*> words(argv, static_cast<size_t>(argc));
  std::span<char*> after_dashes;
  if (argc > 1 && words[1] == std::string_view("run")) {
    const auto dashes = std::find(words.begin(), words.end(), std::string_view("--"));
    after_dashes = {dashes, words.end()};
    words = {words.begin(), dashes};
  }
  const Subcommand subcommands[] = {add_run(app, after_dashes), add_info(app), add_plan(app),
                                    add_io_bench(app), add_checkpoint(app)};
  try {
    app.parse(static_cast<int>(words.size()), words.data());
  } catch (const CLI::ParseError& error) {
    // --help and --version arrive as "errors" too; their output is for stdout.
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) return app.exit(error);
    return complain(app, error, {words.begin() + 1, words.end()});
  }
  for (const Subcommand& subcommand : subcommands) {
    if (subcommand.app->parsed()) return subcommand.run();
  }
  return kUsageError;
}

}  // namespace
}  // namespace meron::tools

int main(int argc, char** argv) {
  using namespace meron::tools;
  try {
    const int code = main_with_exceptions(argc, argv);
    // A full disk or a reader that went away must not look like success.
    if (std::fflush(stdout) != 0) throw Failure("cannot write to standard output");
    return code;
  } catch (const Failure& failure) {
    fmt::print(stderr, "meron: {}\n", failure.what());
    return failure.exit_code();
  } catch (const std::exception& error) {
    fmt::print(stderr, "meron: {}\n", error.what());
    return kRuntimeError;
  }
}

// SPDX-License-Identifier: Apache-2.0
// `meron checkpoint reshard`, `export`, `prune` and `import`.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <map>

#include "base/human_bytes.h"
#include "checkpoint/export_model.h"
#include "checkpoint/prune.h"
#include "checkpoint/reshard.h"
#include "checkpoint/tensor_reader.h"
#include "tools/meron/checkpoint.h"
#include "tools/meron/failure.h"
#include "tools/meron/python_helper.h"
#include "tools/meron/text.h"

namespace meron::tools {
namespace {

const std::map<std::string, std::string, std::less<>> kDTypes = {
    {"keep", ""},         {"f32", "F32"}, {"float32", "F32"}, {"bf16", "BF16"},
    {"bfloat16", "BF16"}, {"f16", "F16"}, {"float16", "F16"}, {"fp16", "F16"}};

std::string safetensors_dtype(const std::string& word) {
  const auto found = kDTypes.find(word);
  if (found != kDTypes.end()) return found->second;
  throw Failure(fmt::format("--dtype {} is not known: give f32, bf16, f16 or keep", word),
                kUsageError);
}

// "5GB", "500MB", "2GiB", "1000".
uint64_t parse_file_size(const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  const std::map<std::string_view, double> units = {
      {"", 1},      {"B", 1},      {"KB", 1e3},        {"MB", 1e6},     {"GB", 1e9},
      {"TB", 1e12}, {"KiB", 1024}, {"MiB", 1048576.0}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
  const auto unit = units.find(end);
  const double bytes = unit == units.end() ? 0 : number * unit->second;
  if (end != text.c_str() && std::isfinite(bytes) && bytes >= 1 && bytes < 0x1p62) {
    return static_cast<uint64_t>(bytes);
  }
  throw Failure(fmt::format("--max-file-size {} is no size: give 5GB, 500MB or 2GiB", text),
                kUsageError);
}

uint64_t all_bytes(const checkpoint::Manifest& manifest, bool values_only) {
  uint64_t bytes = 0;
  for (const auto& tensor : manifest.tensors) {
    if (!values_only || tensor.kind == "values") bytes += bytes_of(tensor);
  }
  return bytes;
}

uint64_t at_least(const char* option, int64_t value) {
  if (value >= 1) return static_cast<uint64_t>(value);
  throw Failure(fmt::format("{} {} is not possible: give a whole number from 1", option, value),
                kUsageError);
}

}  // namespace

int reshard_checkpoint(const ReshardWords& words) {
  const uint64_t ranks = at_least("--ranks", words.ranks);
  if (ranks > UINT32_MAX) throw Failure("--ranks is too large", kUsageError);
  std::filesystem::path to(words.to);
  if (!to.has_filename()) to = to.parent_path();  // "new/"
  const std::string root = to.has_parent_path() ? to.parent_path().string() : ".";
  checkpoint::TensorReader from(open_checkpoint(words.from));
  if (from.checkpoint().foreign) {
    throw Failure(fmt::format(
        "{}: it is a model of Hugging Face, which has no ranks. Load it as it is, or make a "
        "checkpoint of it by `meron checkpoint import`",
        from.checkpoint().path));
  }
  ProgressLine progress("wrote", all_bytes(from.manifest(), false));
  must(checkpoint::reshard(from,
                           {.root = root,
                            .name = to.filename().string(),
                            .ranks = static_cast<uint32_t>(ranks),
                            .overwrite = words.overwrite},
                           [&](uint64_t bytes) { progress.add(bytes); }));
  progress.clear();
  fmt::print("{}: {} rank{} of {}, in {:.1f} s\n", words.to, ranks, ranks == 1 ? "" : "s",
             human_bytes(all_bytes(from.manifest(), false) / ranks), progress.seconds());
  return kSuccess;
}

int export_checkpoint(const ExportWords& words) {
  checkpoint::ModelOptions options;
  options.folder = words.folder;
  options.dtype = safetensors_dtype(words.dtype);
  options.overwrite = words.overwrite;
  if (!words.max_file_size.empty()) options.max_file_bytes = parse_file_size(words.max_file_size);
  checkpoint::TensorReader from(open_checkpoint(words.from));
  ProgressLine progress("wrote", all_bytes(from.manifest(), true));
  const std::vector<std::string> names =
      must(checkpoint::export_model(from, options, [&](uint64_t bytes) { progress.add(bytes); }));
  progress.clear();
  for (const std::string& name : names) fmt::print("{}/{}\n", words.folder, name);
  return kSuccess;
}

int prune_checkpoints(const PruneWords& words) {
  const uint64_t keep = at_least("--keep", words.keep);
  const std::vector<std::string> names =
      must(words.dry_run ? checkpoint::would_prune(words.root, keep)
                         : checkpoint::prune(words.root, keep));
  for (const std::string& name : names) {
    fmt::print("{} {}/{}\n", words.dry_run ? "would remove" : "removed", words.root, name);
  }
  if (names.empty()) fmt::print("nothing to remove in {}\n", words.root);
  return kSuccess;
}

int import_checkpoint(const std::vector<std::string>& words) {
  std::fflush(nullptr);
  int error = 0;
  const std::string program =
      "import sys\n"
      "try:\n"
      "    import meron.convert.__main__ as main\n"
      "except ImportError as error:\n"
      "    print(f'meron: {sys.executable} cannot import meron.convert: {error}. Install the '\n"
      "          'Python package meron and torch, or activate the environment that has them',\n"
      "          file=sys.stderr)\n"
      "    sys.exit(1)\n"
      "import runpy\n"
      "sys.argv[0] = 'meron checkpoint'\n"
      "runpy.run_module('meron.convert', run_name='__main__')\n";
  for (const std::string& python : python_interpreters()) {
    std::vector<std::string> command = python_command(python, program);
    command.emplace_back("import");
    command.insert(command.end(), words.begin(), words.end());
    std::vector<char*> arguments;
    for (std::string& word : command) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    execvp(arguments[0], arguments.data());
    error = errno;
  }
  throw system_failure(
      "import needs python3 with the package meron and torch, and python3 does not start", error);
}

}  // namespace meron::tools

// SPDX-License-Identifier: Apache-2.0
// What the subcommands of `meron checkpoint` have in common, and each of them: those that look, in
// checkpoint_look.cpp and checkpoint_diff.cpp, and those that write, in checkpoint_write.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/directory.h"
#include "checkpoint/manifest.h"
#include "tools/meron/engine_error.h"

namespace meron::tools {

// The checkpoint: a directory of one, of several (then `name`, or the newest complete one), or a
// model of Hugging Face.
struct Which {
  std::string path;
  std::string name;
};

struct InspectOptions {
  Which which;
  bool all = false;
  bool json = false;
};
int inspect_checkpoint(const InspectOptions& options);

int verify_checkpoint(const Which& which, bool json);

struct ListOptions {
  std::string root;
  bool json = false;
};
int list_checkpoints(const ListOptions& options);

struct DiffOptions {
  Which a, b;
  bool all = false;
  bool values_only = false;
  bool json = false;
};
int diff_checkpoints(const DiffOptions& options);

struct ReshardWords {
  Which from;
  std::string to;
  int64_t ranks = 0;
  bool overwrite = false;
};
int reshard_checkpoint(const ReshardWords& words);

struct ExportWords {
  Which from;
  std::string folder;
  std::string dtype;
  std::string max_file_size;
  bool overwrite = false;
};
int export_checkpoint(const ExportWords& words);

struct PruneWords {
  std::string root;
  int64_t keep = 0;
  bool dry_run = false;
};
int prune_checkpoints(const PruneWords& words);

// Replaces this process by `python3 -m meron.convert import WORDS`.
int import_checkpoint(const std::vector<std::string>& words);

// ---- Shared ----

// Says on stderr which incomplete ones it passed over.
checkpoint::Checkpoint open_checkpoint(const Which& which);

uint64_t elements_of(const checkpoint::Tensor& tensor);
uint64_t bytes_of(const checkpoint::Tensor& tensor);
std::string shape_text(const checkpoint::Tensor& tensor);  // "[768, 50257]"

// A line on the terminal that says how far the work is; nothing where stderr is no terminal.
class ProgressLine {
 public:
  ProgressLine(std::string verb, uint64_t total) : verb_(std::move(verb)), total_(total) {}
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void add(uint64_t bytes);
  void clear();
  double seconds() const;  // since it began

 private:
  const std::string verb_;
  const uint64_t total_;
  uint64_t done_ = 0;
  int64_t shown_ns_ = 0;
  const int64_t begun_ns_ = now();
  bool on_line_ = false;

  static int64_t now();
};

}  // namespace meron::tools

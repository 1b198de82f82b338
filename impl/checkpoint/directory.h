// SPDX-License-Identifier: Apache-2.0
// A directory of checkpoints (ROOT): its checkpoints, and which are complete. A checkpoint is a
// directory in ROOT that has a manifest. It is incomplete if a file is missing or shorter than the
// manifest says, as after a copy that was interrupted. Whatever else keeps it from being read is
// damage. Other files in ROOT are left alone.
//
// If each node saves on its own disk (Manifest::nodes > 1), a node's directory holds the files of
// its ranks: none if its ranks own no elements. If a `node` is given, its files must exist.
// Otherwise the files of at least one node must exist, unless some node has none. A node with some
// files missing makes the checkpoint incomplete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/held_files.h"
#include "checkpoint/history.h"
#include "checkpoint/manifest.h"

namespace meron::checkpoint {

// A reader looks again for so long while other saves remove each checkpoint that it finds.
inline constexpr int64_t kReplacedNs = 30'000'000'000;
inline constexpr size_t kMaxCheckpointName = 200;  // bytes

// A name is one component, not hidden, 1 to kMaxCheckpointName bytes of valid UTF-8 without control
// characters, and not "latest". Else MERON_E_ARGUMENT.
Status check_checkpoint_name(const std::string& name);
// The same of a checkpoint to be saved. Names of files that readers look for in a directory are
// refused too, such as meron.json and *.safetensors: the directory would look like one of these.
Status check_new_name(const std::string& name);

struct Skipped {
  std::string name;
  std::string reason;
};

struct Checkpoint {
  std::string path;  // of its directory, or of its one file
  Manifest manifest;
  bool foreign = false;  // a model of Hugging Face (source.h): no checksums, and links are followed
  std::string files_in = {};  // where the files are, if that is not `path`
  std::vector<Skipped> skipped =
      {};                      // incomplete ones, if it was chosen as the newest complete one
  std::string other_run = {};  // then: the newest of another line, if its step is higher
  History history = {};        // its id is empty if it has none
  std::shared_ptr<HeldFiles> held = nullptr;  // its directory; null: opened by the path

  const std::string& directory() const { return files_in.empty() ? path : files_in; }
};

// The checkpoint in that directory, if it is complete. If another save replaces it meanwhile, the
// new one. Errors: MERON_E_NOT_FOUND without a manifest; those of parse_manifest; MERON_E_CORRUPT
// naming the file that is missing or has another size.
Result<Checkpoint> open_checkpoint(const std::string& path, std::optional<uint32_t> node = {});

// True if the manifest in the directory has this id. Reads its first lines alone.
Result<bool> begins_with_id(const HeldFiles& held, const std::string& id);

// The nodes that have files, ascending.
std::vector<uint32_t> nodes_of(const Manifest& manifest);
// Those nodes that have a file in the directory, ascending.
Result<std::vector<uint32_t>> nodes_there(const std::string& path, const Manifest& manifest);

struct Entry {
  std::string name;
  uint64_t step = 0;
  uint32_t world = 0;                      // ranks that saved it
  std::string created = {};                // Manifest::created
  uint64_t bytes = 0;                      // of its files
  bool whole_state = true;                 // Manifest::complete
  std::string id = {};                     // Manifest::id
  std::vector<uint32_t> nodes = {};        // nodes_of() its manifest
  std::vector<uint32_t> nodes_there = {};  // whose files are in the directory; ascending
  std::string defect = {};                 // why it is not complete: then the rest may be unknown
  std::optional<Error> damage = {};        // what keeps it from being read, if not missing files
  History history = {};                    // its id is empty if it has none
  bool complete() const { return defect.empty(); }
};

// The checkpoint of that name, complete or not; nothing if none has it. Links are not followed.
Result<std::optional<Entry>> find_entry(const std::string& root, const std::string& name);

// Newest first: the line of checkpoints (History::lineage) that was saved to last, then the others;
// in a line by step, then time, then name. The incomplete ones last. Links are not followed.
Result<std::vector<Entry>> list(const std::string& root, std::optional<uint32_t> node = {});

// "'step-2' was taken, and these were passed over: step-3: ..."; empty if none was, and no line has
// a higher step.
std::string words_of_skipped(const Checkpoint& checkpoint);

// With Checkpoint::skipped. MERON_E_NOT_FOUND if there is none, saying why others were skipped. The
// error of a damaged one that may be newer: it is not passed over.
// `incomplete`, which may be null, receives how many were.
Result<Checkpoint> newest_complete(const std::string& root, std::optional<uint32_t> node = {},
                                   size_t* incomplete = nullptr);

// The checkpoint of that name in `root`; if `name` is empty, `root` itself if it is a checkpoint,
// else the newest complete one in it. Errors: MERON_E_ARGUMENT for what is no name;
// MERON_E_NOT_FOUND, naming the existing ones; those of open_checkpoint.
Result<Checkpoint> resolve(const std::string& root, const std::string& name,
                           std::optional<uint32_t> node = {});

}  // namespace meron::checkpoint

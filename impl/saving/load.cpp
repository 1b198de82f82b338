// SPDX-License-Identifier: Apache-2.0
#include "saving/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/no_memory.h"
#include "checkpoint/source.h"
#include "checkpoint/staging.h"
#include "io/io_engine.h"
#include "saving/loader.h"
#include "saving/node_folders.h"

namespace meron {
namespace {

Status fit(const Differences& differences, bool strict, const std::string& path) {
  Differences matter = differences;
  if (!strict) matter.missing.clear(), matter.unexpected.clear(), matter.unmapped.clear();
  if (!matter.any()) return Ok{};
  return Error(MERON_E_ARGUMENT,
               fmt::format("the checkpoint does not fit the units: {}", matter.text()),
               strict && matter.mismatched.empty() && matter.unknown.empty()
                   ? "load it into the model that it is of, or without `strict`"
                   : "load it into the model that it is of")
      .on(path);
}

Status check_model(const checkpoint::Checkpoint& checkpoint, std::span<const UnitState> units) {
  const auto kept_by_optimizer = [](const State& state) {
    return state.kind != StateKind::values && state.kind != StateKind::residual;
  };
  const bool optimizers = std::any_of(units.begin(), units.end(), [&](const UnitState& unit) {
    return std::any_of(unit.states().begin(), unit.states().end(), kept_by_optimizer);
  });
  if (!checkpoint.foreign || !optimizers) return Ok{};
  return Error(MERON_E_ARGUMENT, "a model of Hugging Face has no states of optimizers",
               "load values only")
      .on(checkpoint.path);
}

// As rank 0 sends it: layout, path, directory, line, manifest.
std::string packed(const checkpoint::Checkpoint& checkpoint) {
  const char layout = checkpoint.foreign ? 'f' : 'm';
  return layout + checkpoint.path + '\0' + checkpoint.files_in + '\0' +
         checkpoint::to_json(checkpoint.manifest);
}

Result<checkpoint::Checkpoint> unpacked(std::string_view text) {
  checkpoint::Checkpoint out;
  out.foreign = text.front() == 'f';
  text.remove_prefix(1);
  for (std::string* const field : {&out.path, &out.files_in}) {
    const size_t cut = text.find('\0');
    *field = text.substr(0, cut);
    text.remove_prefix(cut + 1);
  }
  MERON_ASSIGN(out.manifest, checkpoint::parse_manifest(text, !out.foreign));
  return out;
}

// Opens the directory on a rank that reads files of it. Rank 0 found it, and another save may have
// replaced it since: MERON_E_NOT_FOUND.
Status hold_directory(checkpoint::Checkpoint& checkpoint) {
  if (checkpoint.held || checkpoint.foreign) return Ok{};
  MERON_ASSIGN(auto held, checkpoint::HeldFiles::open(checkpoint.directory()));
  MERON_ASSIGN(const bool same, checkpoint::begins_with_id(*held, checkpoint.manifest.id));
  if (!same) {
    return Error(MERON_E_NOT_FOUND, "another save has replaced the checkpoint", "load again")
        .on(checkpoint.path);
  }
  checkpoint.held = std::move(held);
  return Ok{};
}

// Rank 0 reads the manifest for all.
Result<NodeCheckpoint> find_for_all(Exchange& exchange, const LoadOptions& options) {
  checkpoint::Checkpoint own;
  const auto find = [&]() -> Result<std::string> {
    MERON_ASSIGN(own, checkpoint::open_source(options.root, options.name));
    return packed(own);
  };
  MERON_ASSIGN(const std::string shared,
               share(exchange, exchange.rank() == 0 ? catch_no_memory(find)
                                                    : Result<std::string>(std::string())));
  NodeCheckpoint found;
  MERON_ASSIGN(found.checkpoint, unpacked(shared));
  found.checkpoint.skipped = std::move(own.skipped);
  found.checkpoint.other_run = std::move(own.other_run);
  found.checkpoint.history = std::move(own.history);
  found.checkpoint.held = std::move(own.held);
  if (options.rank0_only) found.readers.assign(found.checkpoint.manifest.files.size(), 0);
  return found;
}

// The error, which ends the run, with what a new run can load instead of a damaged checkpoint.
Error naming_the_one_before(Error error, const std::string& root,
                            const checkpoint::Checkpoint& damaged) {
  if (error.code() != MERON_E_CORRUPT || damaged.foreign) return error;
  error.info().advice =
      "the drive or a copy has changed it: start again with another checkpoint, or copy it anew";
  const auto found = checkpoint::list(root);
  if (!found.ok()) return error;  // root is the checkpoint itself
  bool older = false;
  for (const checkpoint::Entry& entry : *found) {
    if (older && entry.complete()) {
      error.info().advice = fmt::format(
          "the drive or a copy has changed it: start again, and load the one before by its name, "
          "'{}'",
          entry.name);
      break;
    }
    older = older || entry.name == damaged.manifest.name;
  }
  return error;
}

// As many bytes as the staging of a save has. Each block is one read.
Result<std::shared_ptr<checkpoint::Staging>> staging_for(uint64_t block_bytes) {
  constexpr uint64_t kBytes = checkpoint::kStagingBlock * checkpoint::kStagingBlocks;
  constexpr uint64_t kRead = 1 << 20;
  const uint64_t read = std::max(kRead, block_bytes);
  MERON_ASSIGN(auto engine, IoEngine::create());
  return checkpoint::Staging::create(std::move(engine), read, std::max<uint64_t>(3, kBytes / read));
}

}  // namespace

namespace {

// `replaced` receives true if another save has replaced or removed the checkpoint before all ranks
// had its files open; nothing has changed then. `id` receives its id.
Result<LoadReport> load_once(Exchange& exchange, std::span<const UnitState> units,
                             const LoadOptions& options, const SourceNames& names,
                             const UpdateUnit& update,
                             const std::function<Status(const checkpoint::Manifest&)>& check,
                             bool* replaced, std::string* id) {
  *replaced = false;
  MERON_ASSIGN(NodeCheckpoint found,
               options.nodes.empty()
                   ? find_for_all(exchange, options)
                   : find_on_nodes(exchange, options.root, options.name, options.nodes));
  *id = found.checkpoint.manifest.id;
  checkpoint::Checkpoint& checkpoint = found.checkpoint;

  if (!options.values_only) MERON_TRY(check_model(checkpoint, units));
  const Matching matching(checkpoint.manifest, units, options.values_only, names);
  MERON_TRY(fit(matching.differences(), options.strict, checkpoint.path));
  MERON_TRY(check(checkpoint.manifest));
  const auto create = [&]() -> Result<std::unique_ptr<Loader>> {
    if (Loader::reads_here(exchange, found.readers)) MERON_TRY(hold_directory(checkpoint));
    MERON_ASSIGN(const auto staging, staging_for(checkpoint.manifest.block_bytes));
    return Loader::create(exchange, checkpoint, units, matching, staging,
                          {.timeout_ns = options.timeout_ns, .readers = std::move(found.readers)});
  };
  const auto loader = catch_no_memory(create);
  const Status opened = agree(exchange, loader.ok() ? Status(Ok{}) : Status(loader.error()));
  *replaced = !opened.ok() && opened.error().code() == MERON_E_NOT_FOUND && !checkpoint.foreign;
  MERON_TRY(opened);
  for (const UnitState& unit : units) {
    MERON_TRY(update(unit, [&]() -> Status {
      Status loaded = (*loader)->load_next();
      if (loaded.ok()) return loaded;
      return naming_the_one_before(std::move(loaded).error(), options.root, checkpoint);
    }));
  }
  // All ranks have read their states before any continues or removes files that others still read.
  MERON_TRY(agree(exchange, Ok{}));
  LoadReport report;
  report.differences = matching.differences();
  report.bytes_read = (*loader)->bytes_read();
  report.checkpoint = std::move(checkpoint);
  return report;
}

}  // namespace

Result<LoadReport> load(Exchange& exchange, std::span<const UnitState> units,
                        const LoadOptions& options, const SourceNames& names,
                        const UpdateUnit& update,
                        const std::function<Status(const checkpoint::Manifest&)>& check) {
  std::string id, former;
  for (bool replaced = false;; former = id) {
    auto report = load_once(exchange, units, options, names, update, check, &replaced, &id);
    // The same one again: it is there, and a rank does not see its files.
    if (!replaced || id == former) return report;
  }
}

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/source.h"

#include <fmt/format.h>

#include "checkpoint/hf_source.h"
#include "os/directory.h"

namespace meron::checkpoint {
namespace {

Result<bool> is_checkpoint(const std::string& directory) {
  MERON_ASSIGN(const auto found, look_at(fmt::format("{}/{}", directory, kManifestFile)));
  return found.has_value();
}

}  // namespace

Result<Checkpoint> open_source(const std::string& path, const std::string& name,
                               std::optional<uint32_t> node) {
  if (!name.empty()) {
    MERON_TRY(check_checkpoint_name(name));
    const std::string named = fmt::format("{}/{}", path, name);
    MERON_ASSIGN(const bool ours, is_checkpoint(named));
    if (!ours) {
      MERON_ASSIGN(const bool model, has_hf_model(named));
      if (model) return open_hf_directory(named);
    }
    return resolve(path, name, node);
  }
  MERON_ASSIGN(const auto info, look_through(path));
  if (info && info->kind == EntryKind::file) return open_hf_file(path);
  MERON_ASSIGN(const bool ours, is_checkpoint(path));
  if (!info || ours) return resolve(path, name, node);
  size_t incomplete = 0;
  auto newest = newest_complete(path, node, &incomplete);
  if (newest.ok() || newest.error().code() != MERON_E_NOT_FOUND || incomplete != 0) return newest;
  return open_hf_directory(path);
}

ReaderOptions reading_of(const Checkpoint& checkpoint, int64_t timeout_ns) {
  return {.block_bytes = checkpoint.manifest.block_bytes,
          .verify = !checkpoint.foreign,
          .links = checkpoint.foreign,
          .held = checkpoint.held,
          .timeout_ns = timeout_ns};
}

}  // namespace meron::checkpoint

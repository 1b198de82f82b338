// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/model_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <optional>
#include <vector>

#include "base/human_bytes.h"
#include "checkpoint/file_steps.h"
#include "checkpoint/hf_index.h"
#include "checkpoint/hf_source.h"
#include "checkpoint/manifest.h"
#include "checkpoint/piece_name.h"
#include "checkpoint/root_lock.h"
#include "io/kill_point.h"
#include "os/direct_file.h"
#include "os/directory.h"
#include "os/file.h"
#include "os/host.h"
#include "os/process.h"

namespace meron::checkpoint {
namespace {

constexpr std::string_view kExportPrefix = ".exporting-";
constexpr size_t kExportSuffix = 8;
constexpr int kAttempts = 8;
// In the temporary directory: the names of FOLDER that are those of the former model or of the new
// one, a line each. After a kill, whichever the present model does not have are removed.
constexpr std::string_view kNamesFile = "names";
constexpr size_t kMaxNames = size_t{8} << 20;

std::string in(const std::string& folder, std::string_view name) {
  return fmt::format("{}/{}", folder, name);
}

Result<bool> is_there(const std::string& path) {
  MERON_ASSIGN(const auto info, look_at(path));
  return info.has_value();
}

// The files of the index, and the index; nothing if there is none.
Result<std::set<std::string>> indexed_files(const std::string& folder) {
  std::set<std::string> names;
  const std::string path = in(folder, kHfIndexFile);
  MERON_ASSIGN(const bool there, is_there(path));
  if (!there) return names;
  MERON_ASSIGN(const std::string text, read_file(path, kMaxManifest));
  const auto index = parse_hf_index(text);
  if (!index.ok()) return Error(index.error()).on(path);
  names.insert(index->files.begin(), index->files.end());
  names.emplace(kHfIndexFile);
  return names;
}

// The files that a reader uses.
Result<std::set<std::string>> live_files(const std::string& folder) {
  MERON_ASSIGN(const bool single, is_there(in(folder, kHfFile)));
  if (single) return std::set<std::string>{std::string(kHfFile)};
  return indexed_files(folder);
}

bool is_model_file(std::string_view name) {
  return check_file_name(name).ok() && (name == kHfIndexFile || name.ends_with(".safetensors"));
}

// The index first: without its files it would describe a missing model.
Status remove_files(const std::string& folder, const std::set<std::string>& names) {
  if (names.count(std::string(kHfIndexFile)) != 0) {
    MERON_TRY(remove_file_step(in(folder, kHfIndexFile)));
    MERON_TRY(sync_directory_step(folder));
  }
  for (const std::string& name : names) {
    if (name != kHfIndexFile) MERON_TRY(remove_file_step(in(folder, name)));
  }
  return Ok{};
}

// Files that an export has put into the folder without getting to its end, or has not removed.
Status sweep(const std::string& folder, const std::string& directory) {
  const auto text = read_file(in(directory, kNamesFile), kMaxNames);
  if (!text.ok()) return text.error().code() == MERON_E_NOT_FOUND ? Ok{} : Status(text.error());
  MERON_ASSIGN(const std::set<std::string> live, live_files(folder));
  std::set<std::string> dead;
  for (size_t at = 0, end; (end = text->find('\n', at)) != std::string::npos; at = end + 1) {
    const std::string name = text->substr(at, end - at);
    if (!is_model_file(name) || live.count(name) != 0) continue;
    MERON_ASSIGN(const bool there, is_there(in(folder, name)));
    if (there) dead.insert(name);
  }
  return remove_files(folder, dead);
}

// An export's directory with its lock; none if it vanished meanwhile, or another process has it.
Result<std::optional<FileLock>> try_own(const std::string& directory) {
  const std::string path = in(directory, kOwnerName);
  auto lock = make_lock_step(path);
  if (!lock.ok()) {
    if (lock.error().code() == MERON_E_NOT_FOUND) return std::optional<FileLock>();
    return std::move(lock).error();
  }
  if (lock->state() == FileLock::State::busy) return std::optional<FileLock>();
  // A process that removes a directory holds its lock: this lock may be on a removed file.
  MERON_ASSIGN(const bool there, is_there(path));
  if (!there) return std::optional<FileLock>();
  return std::optional<FileLock>(std::move(lock).value());
}

bool is_export_directory(const DirectoryEntry& entry) {
  return entry.kind == EntryKind::directory && entry.name.starts_with(kExportPrefix) &&
         entry.name.size() == kExportPrefix.size() + kExportSuffix;
}

// MERON_E_STATE if another process exports to the folder; removes what is left of killed ones.
Status look_at_others(const std::string& folder, const std::string& own) {
  MERON_ASSIGN(const std::vector<DirectoryEntry> entries, list_entries(folder));
  for (const DirectoryEntry& entry : entries) {
    const std::string directory = in(folder, entry.name);
    if (!is_export_directory(entry) || directory == own) continue;
    const std::string owner = in(directory, kOwnerName);
    const auto lock = FileLock::attempt(owner, true);
    if (!lock.ok()) continue;  // another user's, or it was removed
    if (lock->state() == FileLock::State::busy) {
      const auto who = read_file(owner, 1000);
      return Error(MERON_E_STATE,
                   fmt::format("another export to this folder is under way in {}",
                               who.ok() && !who->empty() ? *who : "another process"),
                   "wait for it, end that process, or choose another folder")
          .on(folder);
    }
    if (lock->state() != FileLock::State::held) continue;
    MERON_TRY(sweep(folder, directory));
    (void)remove_tree_step(directory).ok();
  }
  return Ok{};
}

Status make_file(const std::string& path, const ModelFile& file) {
  MERON_ASSIGN(UniqueFd fd, create_file_step(path));
  MERON_ASSIGN(const DirectFile made, DirectFile::adopt(std::move(fd), path, FileUse::write));
  kill_point("fallocate");
  MERON_TRY(made.reserve(0, file.bytes));
  return write_step(made.buffered_fd(), std::as_bytes(std::span(file.head)), 0, path);
}

}  // namespace

Result<std::set<std::string>> model_files(const std::string& folder) {
  MERON_ASSIGN(std::set<std::string> names, indexed_files(folder));
  MERON_ASSIGN(const bool single, is_there(in(folder, kHfFile)));
  if (single) names.emplace(kHfFile);
  return names;
}

ModelExport::ModelExport(std::string folder, bool overwrite)
    : folder_(std::move(folder)), overwrite_(overwrite), owner_pid_(process_id()) {}

Result<std::unique_ptr<ModelExport>> ModelExport::begin(const std::string& folder, bool overwrite) {
  MERON_ASSIGN(std::string absolute, absolute_path(folder));
  std::unique_ptr<ModelExport> out(new ModelExport(std::move(absolute), overwrite));
  MERON_TRY(out->prepare());
  return out;
}

ModelExport::~ModelExport() {
  if (process_id() != owner_pid_) return;
  try {
    abandon();
  } catch (const std::bad_alloc&) {
    // The next export removes what stays.
  }
}

Status ModelExport::prepare() {
  MERON_TRY(make_directories_step(folder_));
  for (int attempt = 0; directory_.empty(); ++attempt) {
    MERON_ASSIGN(const std::string suffix, random_suffix());
    const std::string directory = fmt::format("{}/{}{}", folder_, kExportPrefix, suffix);
    MERON_ASSIGN(const bool made, make_directory_step(directory));
    if (!made) continue;
    auto owner = try_own(directory);
    if (!owner.ok()) {
      (void)remove_tree_step(directory).ok();
      return std::move(owner).error();
    }
    if (owner->has_value()) {
      owner_ = std::move(**owner);
      directory_ = directory;
    } else if (attempt == kAttempts) {
      return Error(MERON_E_STATE, "cannot lock a temporary directory", "try again").on(directory);
    }
  }
  (void)owner_.write(fmt::format("process {} on {}", process_id(), host_name())).ok();
  MERON_TRY(look_at_others(folder_, directory_));
  MERON_TRY(check_free());
  MERON_ASSIGN(former_, model_files(folder_));
  return Ok{};
}

Status ModelExport::check_free() const {
  if (overwrite_) return Ok{};
  for (const std::string_view name : {kHfFile, kHfIndexFile}) {
    MERON_ASSIGN(const bool there, is_there(in(folder_, name)));
    if (!there) continue;
    return Error(MERON_E_DUPLICATE, fmt::format("a model is there already: {}", name),
                 "choose another folder, or overwrite it")
        .on(folder_);
  }
  return Ok{};
}

Result<ModelLayout> ModelExport::lay_out(std::span<const ModelTensor> tensors,
                                         uint64_t max_file_bytes, uint32_t* generation) const {
  MERON_ASSIGN(ModelLayout layout, lay_out_model(tensors, max_file_bytes));
  *generation = layout.files.size() == 1 ? 1 : free_generation(layout.files.size(), former_);
  if (*generation == 1) return layout;
  return lay_out_model(tensors, max_file_bytes, *generation);
}

Status ModelExport::make_files(const ModelLayout& layout) {
  uint64_t needed = 0;
  for (const ModelFile& file : layout.files) needed += file.bytes;
  MERON_ASSIGN(const DirectFile disk, DirectFile::open(in(directory_, kOwnerName)));
  if (const uint64_t free = disk.free_bytes(); free != 0 && free < needed) {
    return Error(MERON_E_NO_SPACE,
                 fmt::format("the file system has {} free, and the model needs {}",
                             human_bytes(free), human_bytes(needed)),
                 "free some space, or export to another disk")
        .on(folder_);
  }
  for (const ModelFile& file : layout.files) {
    MERON_TRY(make_file(in(directory_, file.name), file));
  }
  return Ok{};
}

Status ModelExport::publish(const ModelLayout& layout) {
  MERON_TRY(sync_files(layout));
  MERON_TRY(check_free());
  MERON_ASSIGN(const std::set<std::string> former, model_files(folder_));
  if (former != former_) {
    return Error(MERON_E_STATE, "the model in the folder changed during the export",
                 "let one program write to it at a time")
        .on(folder_);
  }
  std::string names;
  for (const std::string& name : former) names += name + "\n";
  for (const std::string& name : layout.names()) names += name + "\n";
  MERON_TRY(replace_file_durably(directory_, kNamesFile, names));
  MERON_TRY(sync_directory_step(directory_));
  return put_in_place(layout, former);
}

Status ModelExport::sync_files(const ModelLayout& layout) const {
  for (const ModelFile& file : layout.files) {
    const std::string path = in(directory_, file.name);
    MERON_ASSIGN(const DirectFile open, DirectFile::open(path));
    MERON_TRY(sync_file_step(open.buffered_fd(), path));
  }
  if (layout.index.empty()) return Ok{};
  return replace_file_durably(directory_, kHfIndexFile, layout.index);
}

Status ModelExport::put_in_place(const ModelLayout& layout, const std::set<std::string>& former) {
  const auto place = [&](std::string_view name) {
    return rename_step(in(directory_, name), in(folder_, name));
  };
  for (const ModelFile& file : layout.files) MERON_TRY(place(file.name));
  MERON_TRY(sync_directory_step(folder_));
  if (!layout.index.empty()) {
    MERON_TRY(place(kHfIndexFile));
    MERON_TRY(sync_directory_step(folder_));
  }
  std::set<std::string> gone = former;
  for (const std::string& name : layout.names()) gone.erase(name);
  // A single file has precedence over an index: several files are the model once it is removed.
  if (gone.erase(std::string(kHfFile)) != 0) {
    MERON_TRY(remove_file_step(in(folder_, kHfFile)));
    MERON_TRY(sync_directory_step(folder_));
  }
  return remove_files(folder_, gone);
}

void ModelExport::abandon() {
  if (directory_.empty()) return;
  // If it cannot be removed now, the next export removes it.
  if (sweep(folder_, directory_).ok()) (void)remove_tree_step(directory_).ok();
  owner_.release();
  directory_.clear();
}

}  // namespace meron::checkpoint

// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/directory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "checkpoint/file_steps.h"
#include "checkpoint/root_lock.h"
#include "os/directory.h"
#include "plan/text.h"

namespace meron::checkpoint {
namespace {

std::string reason_of(const Error& error) {
  const ErrorInfo& info = error.info();
  return info.subject.empty() ? info.what : fmt::format("{}: {}", info.subject, info.what);
}

// What is wrong with the file beside the manifest, if something is.
std::optional<Error> defect_of(const std::string& path, const File& file) {
  const std::string file_path = fmt::format("{}/{}", path, file.name);
  const auto found = look_at(file_path);
  if (!found.ok()) return found.error();
  if (!*found) {
    return Error(MERON_E_CORRUPT, "the file of the checkpoint is not there",
                 "copy it there, or load another checkpoint")
        .on(file_path);
  }
  const EntryInfo& info = **found;
  if (info.kind == EntryKind::file && info.bytes == file.bytes) return {};
  return Error(MERON_E_CORRUPT,
               info.kind != EntryKind::file
                   ? std::string("it is no regular file")
                   : fmt::format("the file has {} bytes, and by the manifest it has {}", info.bytes,
                                 file.bytes),
               "copy it anew, or load another checkpoint")
      .on(file_path);
}

Status check_files(const std::string& path, const Manifest& manifest,
                   std::optional<uint32_t> node) {
  struct OfNode {
    size_t there = 0;
    std::optional<Error> defect;
    bool absent = true;  // the only defects are missing files
  };
  std::map<uint32_t, OfNode> nodes;
  for (const File& file : manifest.files) {
    if (node && manifest.origin.nodes > 1 && file.node != *node) continue;
    OfNode& of = nodes[file.node];
    std::optional<Error> defect = defect_of(path, file);
    if (!defect) {
      ++of.there;
      continue;
    }
    const auto found = look_at(fmt::format("{}/{}", path, file.name));
    if (!found.ok() || *found) of.absent = false;
    if (!of.defect) of.defect = std::move(defect);
  }
  const bool others_may_lack = manifest.origin.nodes > 1 && !node;
  const auto is_there = [](const auto& of) { return of.second.there != 0; };
  // Without any, the directory may be that of a node that has none.
  const bool may_be_elsewhere = std::any_of(nodes.begin(), nodes.end(), is_there) ||
                                nodes_of(manifest).size() < manifest.origin.nodes;
  for (const auto& [number, of] : nodes) {
    if (!of.defect) continue;
    if (others_may_lack && may_be_elsewhere && of.there == 0 && of.absent) continue;
    return *of.defect;
  }
  return Ok{};
}

bool newer(const Entry& a, const Entry& b) {
  return std::tuple(a.complete(), a.step, std::string_view(a.created), std::string_view(a.name)) >
         std::tuple(b.complete(), b.step, std::string_view(b.created), std::string_view(b.name));
}

Entry entry_of(const std::string& name, const Checkpoint& checkpoint) {
  const Manifest& manifest = checkpoint.manifest;
  Entry entry{.name = name,
              .step = manifest.step,
              .created = manifest.origin.created,
              .whole_state = manifest.complete,
              .id = manifest.id,
              .nodes = nodes_of(manifest)};
  for (const File& file : manifest.files) entry.bytes += file.bytes;
  auto there = nodes_there(checkpoint.path, manifest);
  if (there.ok()) entry.nodes_there = std::move(there).value();
  return entry;
}

struct Scan {
  std::vector<Entry> entries;        // newest first
  std::optional<Checkpoint> newest;  // complete one
  bool vanished = false;             // some had a name when they were listed, and lost it
};

constexpr int kScans = 20;

Result<bool> has_manifest(const std::string& path) {
  MERON_ASSIGN(const auto found, look_at(fmt::format("{}/{}", path, kManifestFile)));
  return found.has_value();
}

bool is_gone(const std::string& path) {
  const auto found = look_at(path);
  return found.ok() && !*found;
}

// A checkpoint that a killed process put aside may be the only complete one, however long its name.
bool may_be_checkpoint(const DirectoryEntry& entry) {
  if (entry.kind != EntryKind::directory) return false;
  if (check_checkpoint_name(entry.name).ok()) return true;
  const auto name = replaced_name(entry.name);
  return name && check_checkpoint_name(std::string(*name)).ok();
}

// Manifests are large: of those that are read, one is kept.
Result<Scan> scan_once(const std::string& root, std::optional<uint32_t> node) {
  Scan scan;
  Entry newest;
  MERON_ASSIGN(const std::vector<DirectoryEntry> found, list_entries(root));
  for (const DirectoryEntry& directory : found) {
    if (!may_be_checkpoint(directory)) continue;
    const std::string path = fmt::format("{}/{}", root, directory.name);
    const auto ours = has_manifest(path);
    if (ours.ok() && !*ours) {
      scan.vanished = scan.vanished || is_gone(path);
      continue;
    }
    auto checkpoint = ours.ok() ? open_checkpoint(path, node) : ours.error();
    if (!checkpoint.ok() && is_gone(path)) {
      scan.vanished = true;
      continue;
    }
    if (!checkpoint.ok()) {
      scan.entries.push_back({.name = directory.name, .defect = reason_of(checkpoint.error())});
      continue;
    }
    scan.entries.push_back(entry_of(directory.name, *checkpoint));
    if (scan.newest && !newer(scan.entries.back(), newest)) continue;
    newest = scan.entries.back();
    scan.newest = std::move(checkpoint).value();
  }
  std::sort(scan.entries.begin(), scan.entries.end(), newer);
  return scan;
}

// If a prune() of another process removes all that were listed, a newer one exists. A listing may
// miss what gets its name meanwhile, so one that shows nothing is not believed at once.
Result<Scan> scan(const std::string& root, std::optional<uint32_t> node) {
  for (int i = 1;; ++i) {
    MERON_ASSIGN(Scan found, scan_once(root, node));
    const bool settled = !found.vanished && !found.entries.empty();
    if (found.newest || settled || i == kScans) return found;
  }
}

}  // namespace

Status check_checkpoint_name(const std::string& name) {
  const char* why = nullptr;
  const auto control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (name.empty()) {
    why = "is empty";
  } else if (name.size() > kMaxCheckpointName) {
    why = "is too long";
  } else if (name.front() == '.') {
    why = "is hidden";
  } else if (name.find('/') != name.npos) {
    why = "has more than one component";
  } else if (std::any_of(name.begin(), name.end(), control)) {
    why = "has a control character";
  } else if (!valid_utf8(name)) {
    why = "is not valid UTF-8";
  } else if (name == kLatestName) {
    why = "is that of a file";
  }
  if (why == nullptr) return Ok{};
  return Error(MERON_E_ARGUMENT,
               fmt::format("the name {} of a checkpoint {}", in_quotes(name), why),
               fmt::format("choose 1 to {} bytes of UTF-8 text without '/', such as step-1000",
                           kMaxCheckpointName));
}

Result<Checkpoint> open_checkpoint(const std::string& path, std::optional<uint32_t> node) {
  auto text = read_beneath_step(path, std::string(kManifestFile), kMaxManifest);
  if (!text.ok()) {
    if (text.error().code() != MERON_E_NOT_FOUND) return std::move(text).error();
    return Error(MERON_E_NOT_FOUND,
                 fmt::format("there is no checkpoint: it has no {}", kManifestFile),
                 "name the directory of one, or the directory that holds several")
        .on(path);
  }
  auto manifest = parse_manifest(*text);
  // After that: a newer version may have another checksum.
  const Status intact = manifest.ok() ? check_manifest_crc(*text) : Status(manifest.error());
  if (!intact.ok()) {
    Error error = intact.error();
    error.info().subject = fmt::format("{}/{}", path, kManifestFile);
    return error;
  }
  MERON_TRY(check_files(path, *manifest, node));
  return Checkpoint{.path = path, .manifest = std::move(manifest).value()};
}

std::vector<uint32_t> nodes_of(const Manifest& manifest) {
  if (manifest.origin.nodes <= 1) return {0};
  std::set<uint32_t> nodes;
  for (const File& file : manifest.files) nodes.insert(file.node);
  return {nodes.begin(), nodes.end()};
}

Result<std::vector<uint32_t>> nodes_there(const std::string& path, const Manifest& manifest) {
  if (manifest.origin.nodes <= 1) return std::vector<uint32_t>{0};
  std::set<uint32_t> there;
  for (const File& file : manifest.files) {
    if (there.count(file.node) != 0) continue;
    MERON_ASSIGN(const auto info, look_at(fmt::format("{}/{}", path, file.name)));
    if (info) there.insert(file.node);
  }
  return std::vector<uint32_t>(there.begin(), there.end());
}

Result<std::optional<Entry>> find_entry(const std::string& root, const std::string& name) {
  MERON_TRY(check_checkpoint_name(name));
  const std::string path = fmt::format("{}/{}", root, name);
  MERON_ASSIGN(const auto there, look_at(path));
  if (!there || there->kind != EntryKind::directory) return std::optional<Entry>();
  MERON_ASSIGN(const bool ours, has_manifest(path));
  if (!ours) return std::optional<Entry>();
  const auto checkpoint = open_checkpoint(path);
  if (!checkpoint.ok()) {
    return std::optional(Entry{.name = name, .defect = reason_of(checkpoint.error())});
  }
  return std::optional(entry_of(name, *checkpoint));
}

Result<std::vector<Entry>> list(const std::string& root, std::optional<uint32_t> node) {
  MERON_ASSIGN(Scan found, scan(root, node));
  return std::move(found.entries);
}

std::string words_of_skipped(const Checkpoint& checkpoint) {
  if (checkpoint.skipped.empty()) return {};
  std::string words = fmt::format("{} was taken, and these were passed over:", checkpoint.path);
  for (const Skipped& each : checkpoint.skipped) {
    words += fmt::format("{} {}: {}", &each == checkpoint.skipped.data() ? "" : ";", each.name,
                         each.reason);
  }
  return words;
}

Result<Checkpoint> newest_complete(const std::string& root, std::optional<uint32_t> node,
                                   size_t* incomplete) {
  MERON_ASSIGN(Scan found, scan(root, node));
  std::vector<Skipped> skipped;
  std::string why;
  for (const Entry& entry : found.entries) {
    if (entry.complete()) continue;
    skipped.push_back({.name = entry.name, .reason = entry.defect});
    why += fmt::format("; {} was skipped: {}", entry.name, entry.defect);
  }
  if (incomplete != nullptr) *incomplete = skipped.size();
  if (found.newest) {
    found.newest->skipped = std::move(skipped);
    return *std::move(found.newest);
  }
  return Error(MERON_E_NOT_FOUND, "no complete checkpoint is in the directory" + why,
               "look at the path, or save one first")
      .on(root);
}

Result<Checkpoint> resolve(const std::string& root, const std::string& name,
                           std::optional<uint32_t> node) {
  if (name.empty()) {
    MERON_ASSIGN(const bool itself, has_manifest(root));
    if (itself) return open_checkpoint(root, node);
    return newest_complete(root, node);
  }
  MERON_TRY(check_checkpoint_name(name));
  const std::string path = fmt::format("{}/{}", root, name);
  MERON_ASSIGN(const auto there, look_at(path));
  if (there) return open_checkpoint(path, node);
  MERON_ASSIGN(const Scan found, scan(root, node));
  std::vector<std::string> names;
  for (const Entry& entry : found.entries) names.push_back(entry.name);
  return Error(MERON_E_NOT_FOUND, fmt::format("there is no checkpoint {}", in_quotes(name)),
               names.empty() ? "the directory has none"
                             : fmt::format("there are {}", fmt::join(names, ", ")))
      .on(root);
}

}  // namespace meron::checkpoint

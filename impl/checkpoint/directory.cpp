// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/directory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "base/clock.h"
#include "checkpoint/file_steps.h"
#include "checkpoint/root_lock.h"
#include "os/directory.h"
#include "os/file.h"
#include "plan/text.h"

namespace meron::checkpoint {
namespace {

std::string reason_of(const Error& error) {
  const ErrorInfo& info = error.info();
  return info.subject.empty() ? info.what : fmt::format("{}: {}", info.subject, info.what);
}

// A file that is not as the manifest says.
struct Defect {
  Error error;
  bool incomplete = false;  // the file is missing, or shorter than the manifest says
  bool absent = false;
};

std::optional<Defect> defect_of(const HeldFiles& held, const std::string& path, const File& file) {
  const std::string file_path = fmt::format("{}/{}", path, file.name);
  const auto found = held.look_at(file.name);
  if (!found.ok()) return Defect{found.error()};
  if (!*found) {
    return Defect{Error(MERON_E_CORRUPT, "the file of the checkpoint is not there",
                        "copy it there, or load another checkpoint")
                      .on(file_path),
                  true, true};
  }
  const EntryInfo& info = **found;
  if (info.kind == EntryKind::file && info.bytes == file.bytes) return {};
  const bool file_there = info.kind == EntryKind::file;
  return Defect{
      Error(MERON_E_CORRUPT,
            file_there ? fmt::format("the file has {} bytes, and by the manifest it has {}",
                                     info.bytes, file.bytes)
                       : std::string("it is no regular file"),
            "copy it anew, or load another checkpoint")
          .on(file_path),
      file_there && info.bytes < file.bytes};
}

// The first defect that makes the checkpoint one that cannot be loaded.
std::optional<Defect> find_defect(const HeldFiles& held, const std::string& path,
                                  const Manifest& manifest, std::optional<uint32_t> node) {
  struct OfNode {
    size_t there = 0;
    std::optional<Defect> defect;
    bool absent = true;  // the only defects are missing files
  };
  std::map<uint32_t, OfNode> nodes;
  for (const File& file : manifest.files) {
    if (node && manifest.origin.nodes > 1 && file.node != *node) continue;
    OfNode& of = nodes[file.node];
    std::optional<Defect> defect = defect_of(held, path, file);
    if (!defect) {
      ++of.there;
      continue;
    }
    of.absent = of.absent && defect->absent;
    if (!of.defect || !defect->incomplete) of.defect = std::move(defect);
  }
  const bool others_may_lack = manifest.origin.nodes > 1 && !node;
  const auto is_there = [](const auto& of) { return of.second.there != 0; };
  // Without any, the directory may be that of a node that has none.
  const bool may_be_elsewhere = std::any_of(nodes.begin(), nodes.end(), is_there) ||
                                nodes_of(manifest).size() < manifest.origin.nodes;
  for (const auto& [number, of] : nodes) {
    if (!of.defect) continue;
    if (others_may_lack && may_be_elsewhere && of.there == 0 && of.absent) continue;
    return of.defect;
  }
  return {};
}

Result<Manifest> read_checked_manifest(const HeldFiles& held, const std::string& path) {
  auto text = held.read(kManifestFile, kMaxManifest);
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
  if (intact.ok()) return manifest;
  Error error = intact.error();
  error.info().subject = fmt::format("{}/{}", path, kManifestFile);
  return error;
}

// Without one, or with that of another checkpoint, as after a copy by hand: nothing.
Result<History> read_history(const HeldFiles& held, const std::string& path) {
  MERON_ASSIGN(const auto there, held.look_at(std::string(kHistoryFile)));
  if (!there) return History{};
  MERON_ASSIGN(const std::string text, held.read(kHistoryFile, kMaxHistory));
  auto history = parse_history(text);
  if (history.ok()) return history;
  Error error = std::move(history).error();
  error.info().subject = fmt::format("{}/{}", path, kHistoryFile);
  error.info().advice = "remove the file: the checkpoint can be loaded without it";
  return error;
}

constexpr int kScans = 20;

// A checkpoint, and why it cannot be loaded, if so.
struct Found {
  Checkpoint checkpoint;
  std::optional<Defect> defect;
};

// The manifest's errors are errors here.
Result<Found> look_into_once(const std::string& path, std::shared_ptr<HeldFiles> held,
                             std::optional<uint32_t> node) {
  Found found;
  found.checkpoint.path = path;
  MERON_ASSIGN(found.checkpoint.manifest, read_checked_manifest(*held, path));
  MERON_ASSIGN(History history, read_history(*held, path));
  if (history.id == found.checkpoint.manifest.id) found.checkpoint.history = std::move(history);
  found.defect = find_defect(*held, path, found.checkpoint.manifest, node);
  found.checkpoint.held = std::move(held);
  return found;
}

// If another save replaces the checkpoint meanwhile, it can look damaged: the new one is read.
Result<Found> look_into(const std::string& path, std::optional<uint32_t> node) {
  for (int i = 1;; ++i) {
    MERON_ASSIGN(const std::shared_ptr<HeldFiles> held, HeldFiles::open(path));
    auto found = look_into_once(path, held, node);
    const bool good = found.ok() && !found->defect;
    if (good || held->in_place() || i == kScans) return found;
  }
}

Entry entry_of(const std::string& name, const Checkpoint& checkpoint) {
  const Manifest& manifest = checkpoint.manifest;
  Entry entry{.name = name,
              .step = manifest.step,
              .world = manifest.origin.world,
              .created = manifest.origin.created,
              .whole_state = manifest.complete,
              .id = manifest.id,
              .nodes = nodes_of(manifest),
              .history = checkpoint.history};
  for (const File& file : manifest.files) entry.bytes += file.bytes;
  auto there = nodes_there(checkpoint.path, manifest);
  if (there.ok()) entry.nodes_there = std::move(there).value();
  return entry;
}

Entry damaged_entry(const std::string& name, const std::string& path, const Error& error) {
  Entry entry{.name = name, .defect = reason_of(error), .damage = error};
  // Its history may still have its step.
  const auto held = HeldFiles::open(path);
  if (!held.ok()) return entry;
  auto history = read_history(**held, path);
  if (!history.ok()) return entry;
  entry.step = history->step;
  entry.history = std::move(history).value();
  return entry;
}

Entry entry_of(const std::string& name, const std::string& path, const Result<Found>& found) {
  if (!found.ok()) return damaged_entry(name, path, found.error());
  Entry entry = entry_of(name, found->checkpoint);
  if (!found->defect) return entry;
  entry.defect = reason_of(found->defect->error);
  if (!found->defect->incomplete) entry.damage = found->defect->error;
  return entry;
}

// Puts the entries in order, newest first.
void sort_entries(std::vector<Entry>& entries) {
  // The time of the last save to each line. Histories decide between saves of one second.
  std::map<std::string, std::pair<std::string, uint64_t>> lines;
  for (const Entry& entry : entries) {
    auto& last = lines[entry.history.lineage];
    last = std::max(last, std::pair(entry.created, entry.history.saved_ns));
  }
  const auto age = [&](const Entry& entry) {
    return std::tuple(entry.complete(), lines[entry.history.lineage], entry.history.lineage,
                      entry.step, std::string_view(entry.created), entry.history.saved_ns,
                      std::string_view(entry.name));
  };
  std::sort(entries.begin(), entries.end(),
            [&](const Entry& a, const Entry& b) { return age(a) > age(b); });
}

struct Scan {
  std::vector<Entry> entries;  // newest first
  bool vanished = false;       // some had a name when they were listed, and lost it
};

// A directory of that name is no manifest: a checkpoint may be called so.
Result<bool> has_manifest(const std::string& path) {
  MERON_ASSIGN(const auto found, look_at(fmt::format("{}/{}", path, kManifestFile)));
  return found.has_value() && found->kind != EntryKind::directory;
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

// Manifests are large: none is kept.
Result<Scan> scan_once(const std::string& root, std::optional<uint32_t> node) {
  Scan scan;
  MERON_ASSIGN(const std::vector<DirectoryEntry> found, list_entries(root));
  for (const DirectoryEntry& directory : found) {
    if (!may_be_checkpoint(directory)) continue;
    const std::string path = fmt::format("{}/{}", root, directory.name);
    const auto ours = has_manifest(path);
    if (ours.ok() && !*ours) {
      scan.vanished = scan.vanished || is_gone(path);
      continue;
    }
    if (!ours.ok()) {  // whatever it is
      scan.entries.push_back({.name = directory.name, .defect = reason_of(ours.error())});
      continue;
    }
    const auto checkpoint = look_into(path, node);
    if ((!checkpoint.ok() || checkpoint->defect) && is_gone(path)) {
      scan.vanished = true;
      continue;
    }
    scan.entries.push_back(entry_of(directory.name, path, checkpoint));
  }
  sort_entries(scan.entries);
  return scan;
}

// If a prune() of another process removes all that were listed, a newer one exists. A listing may
// miss what gets its name meanwhile, so one that shows nothing is not believed at once.
Result<Scan> scan(const std::string& root, std::optional<uint32_t> node) {
  for (int i = 1;; ++i) {
    MERON_ASSIGN(Scan found, scan_once(root, node));
    const auto& entries = found.entries;
    const bool some = !entries.empty() && entries.front().complete();
    const bool settled = !found.vanished && !entries.empty();
    if (some || settled || i == kScans) return found;
  }
}

// True if the history of `damaged` says that it is older than `chosen`.
bool surely_older(const Entry& damaged, const Entry& chosen) {
  return !damaged.history.id.empty() && damaged.history.lineage == chosen.history.lineage &&
         damaged.step < chosen.step;
}

// The error of a damaged checkpoint that may be the newest one.
Status check_damage(const std::vector<Entry>& entries) {
  for (const Entry& entry : entries) {
    if (!entry.damage) continue;
    if (entries.front().complete() && surely_older(entry, entries.front())) continue;
    Error error = *entry.damage;
    error.info().what +=
        fmt::format(", so '{}', which may be the newest checkpoint, cannot be loaded", entry.name);
    error.info().advice = "mend it or move it elsewhere, or load another one by its name";
    return error;
  }
  return Ok{};
}

// The name of the newest one of another line, if that line has reached a later step.
std::string other_run_of(const std::vector<Entry>& entries) {
  const Entry& chosen = entries.front();
  for (const Entry& entry : entries) {
    if (entry.complete() && entry.history.lineage != chosen.history.lineage &&
        entry.step > chosen.step) {
      return entry.name;
    }
  }
  return {};
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

Status check_new_name(const std::string& name) {
  MERON_TRY(check_checkpoint_name(name));
  const std::string_view view = name;
  const bool taken = view == kManifestFile || view == "zero_to_fp32.py" ||
                     view == "zero_to_torch.py" || view.ends_with(".safetensors") ||
                     view.ends_with(".safetensors.index.json");
  if (!taken) return Ok{};
  return Error(MERON_E_ARGUMENT,
               fmt::format("the name {} of a checkpoint is that of a file which readers look for",
                           in_quotes(name)),
               "choose another name, such as step-1000");
}

Result<Checkpoint> open_checkpoint(const std::string& path, std::optional<uint32_t> node) {
  auto found = look_into(path, node);
  if (!found.ok()) {
    if (found.error().code() != MERON_E_NOT_FOUND || !is_gone(path))
      return std::move(found).error();
    return Error(MERON_E_NOT_FOUND, "there is no checkpoint: the directory does not exist",
                 "look at the path; if another job removes old checkpoints, let it keep more")
        .on(path);
  }
  if (found->defect) return std::move(found->defect->error);
  return std::move(found->checkpoint);
}

Result<bool> begins_with_id(const HeldFiles& held, const std::string& id) {
  constexpr size_t kBegin = 512;
  MERON_ASSIGN(const BeneathFile manifest, held.file(std::string(kManifestFile)));
  MERON_ASSIGN(const std::string begin,
               read_front(manifest.fd.get(), std::min<uint64_t>(kBegin, manifest.bytes),
                          std::string(kManifestFile)));
  return begin.find(fmt::format("\"{}\"", id)) != begin.npos;
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
  return std::optional(entry_of(name, path, look_into(path, {})));
}

Result<std::vector<Entry>> list(const std::string& root, std::optional<uint32_t> node) {
  MERON_ASSIGN(Scan found, scan(root, node));
  return std::move(found.entries);
}

std::string words_of_skipped(const Checkpoint& checkpoint) {
  std::string words;
  if (!checkpoint.other_run.empty()) {
    words = fmt::format(
        "{} was taken, which is of the run that saved last. '{}' has a higher step and is of "
        "another "
        "run: load it by its name to continue that one",
        checkpoint.path, checkpoint.other_run);
  }
  if (checkpoint.skipped.empty()) return words;
  if (!words.empty()) words += ". ";
  words += fmt::format("{} was taken, and these were passed over:", checkpoint.path);
  for (const Skipped& each : checkpoint.skipped) {
    words += fmt::format("{} {}: {}", &each == checkpoint.skipped.data() ? "" : ";", each.name,
                         each.reason);
  }
  return words;
}

Result<Checkpoint> newest_complete(const std::string& root, std::optional<uint32_t> node,
                                   size_t* incomplete) {
  const Deadline deadline = Deadline::after(kReplacedNs);
  while (true) {
    MERON_ASSIGN(const Scan found, scan(root, node));
    MERON_TRY(check_damage(found.entries));
    std::vector<Skipped> skipped;
    std::string why;
    for (const Entry& entry : found.entries) {
      if (entry.complete() || entry.damage) continue;
      skipped.push_back({.name = entry.name, .reason = entry.defect});
      why += fmt::format("; {} was skipped: {}", entry.name, entry.defect);
    }
    if (incomplete != nullptr) *incomplete = skipped.size();
    if (found.entries.empty() || !found.entries.front().complete()) {
      return Error(MERON_E_NOT_FOUND, "no complete checkpoint is in the directory" + why,
                   "look at the path, or save one first")
          .on(root);
    }
    const std::string& name = found.entries.front().name;
    auto newest = open_checkpoint(fmt::format("{}/{}", root, name), node);
    if (newest.ok()) {
      newest->skipped = std::move(skipped);
      newest->other_run = other_run_of(found.entries);
      return newest;
    }
    // Another save has removed it since, and there is a newer one.
    if (newest.error().code() != MERON_E_NOT_FOUND || deadline.passed()) return newest;
  }
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

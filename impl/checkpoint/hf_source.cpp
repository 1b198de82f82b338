// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/hf_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/file_steps.h"
#include "checkpoint/hf_index.h"
#include "checkpoint/piece_name.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/staging.h"
#include "os/directory.h"
#include "os/file.h"
#include "plan/model_desc.h"
#include "plan/text.h"
#include "plan/unit_layout.h"

namespace meron::checkpoint {
namespace {

constexpr std::string_view kTensorsSuffix = ".safetensors";
constexpr std::string_view kIndexSuffix = ".safetensors.index.json";
constexpr std::string_view kPickleAdvice =
    "convert it with `meron checkpoint import`, which reads weights alone, in a process of its own";

bool is_pickle(std::string_view name) {
  return name.ends_with(".bin") || name.ends_with(".pt") || name.ends_with(".pth") ||
         name.ends_with(".bin.index.json");
}

std::string base_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == path.npos ? path : path.substr(slash + 1);
}

// Makes the file the subject: the parser's own is "safetensors header" or so.
template <class T>
Error of_file(const Result<T>& failed, const std::string& path) {
  ErrorInfo info = failed.error().info();
  if (!info.subject.empty() && info.subject != path) info.what = info.subject + ": " + info.what;
  info.subject = path;
  return Error(std::move(info));
}

struct Header {
  uint64_t file_bytes = 0;
  SafetensorsHeader header;
};

Result<Header> read_header(const std::string& path) {
  MERON_ASSIGN(const BeneathFile file, open_through_links_step(path));
  const uint64_t first = std::min<uint64_t>(file.bytes, kSafetensorsLengthBytes);
  MERON_ASSIGN(const std::string length, read_front(file.fd.get(), first, path));
  const auto head_bytes = safetensors_head_bytes(length, file.bytes);
  if (!head_bytes.ok()) return of_file(head_bytes, path);
  MERON_ASSIGN(const std::string head, read_front(file.fd.get(), *head_bytes, path));
  auto header = parse_safetensors(head, file.bytes);
  if (!header.ok()) return of_file(header, path);
  for (const SafetensorsEntry& entry : header->entries) {
    if (const Status valid = check_name(entry.name); !valid) return of_file(valid, path);
  }
  return Header{.file_bytes = file.bytes, .header = std::move(header).value()};
}

Manifest empty_manifest(const std::string& path) {
  Manifest manifest;
  manifest.id = std::string(32, '0');
  const std::string name = base_of(path);
  manifest.name = check_file_name(name).ok() ? name : "model";
  manifest.origin.created = "1970-01-01T00:00:00Z";
  manifest.origin.writer = "safetensors";
  manifest.origin.plan = "{}";
  manifest.extra = "{}";
  manifest.block_bytes = kStagingBlock;
  manifest.complete = false;
  return manifest;
}

void add_file(Manifest& manifest, const std::string& name, const Header& header) {
  const auto file = static_cast<uint32_t>(manifest.files.size());
  manifest.files.push_back({.name = name, .bytes = header.file_bytes, .crc = {}});
  for (const SafetensorsEntry& entry : header.header.entries) {
    Tensor tensor{.name = entry.name,
                  .kind = "values",
                  .dtype = entry.dtype,
                  .shape = entry.shape,
                  .pieces = {}};
    const uint64_t count = (entry.end - entry.begin) / element_bytes(entry.dtype);
    if (count != 0) {
      tensor.pieces.push_back({.file = file,
                               .begin = 0,
                               .count = count,
                               .offset = header.header.data_begin + entry.begin});
    }
    manifest.tensors.push_back(std::move(tensor));
  }
}

// The limit of a manifest, which all ranks are sent.
Status check_size(const Manifest& manifest, const std::string& path) {
  if (manifest.tensors.size() <= kMaxTensors) return Ok{};
  return Error(MERON_E_ARGUMENT,
               fmt::format("the model has {} tensors, more than the limit of {}",
                           manifest.tensors.size(), kMaxTensors),
               "no valid model has so many")
      .on(path);
}

Result<Manifest> read_sharded(const std::string& path, const HfIndex& index,
                              const std::string& index_path) {
  // By name: where the index says it is, and in which file it was found.
  struct Place {
    std::optional<uint32_t> said, found;
  };
  std::map<std::string_view, Place> places;
  for (const HfIndex::Tensor& tensor : index.tensors) {
    Place& place = places[tensor.name];
    if (place.said) {
      return Error(MERON_E_CORRUPT,
                   fmt::format("the index names tensor {} twice", in_quotes(tensor.name)),
                   "fetch the model anew")
          .on(index_path);
    }
    place.said = tensor.file;
  }
  Manifest manifest = empty_manifest(path);
  std::vector<Header> headers;  // their names outlive `places`
  headers.reserve(index.files.size());
  for (uint32_t f = 0; f < index.files.size(); ++f) {
    const std::string file = fmt::format("{}/{}", path, index.files[f]);
    auto header = read_header(file);
    if (!header.ok()) {
      if (header.error().code() != MERON_E_NOT_FOUND) return header.error();
      return Error(MERON_E_NOT_FOUND, "the file is not there, and the index places tensors in it",
                   "fetch it: the model is not complete without it")
          .on(file);
    }
    headers.push_back(std::move(header).value());
    for (const SafetensorsEntry& entry : headers.back().header.entries) {
      Place& place = places[entry.name];
      const auto other = place.found ? place.found : place.said;
      if (other && *other != f) {
        return Error(MERON_E_CORRUPT,
                     fmt::format("the file has tensor {}, which {} has by the index",
                                 in_quotes(entry.name), index.files[*other]),
                     "fetch the model anew: one of the two is of another one")
            .on(file);
      }
      place.found = f;
    }
    add_file(manifest, index.files[f], headers.back());
    MERON_TRY(check_size(manifest, path));
  }
  for (const auto& [name, place] : places) {
    if (place.found) continue;
    return Error(MERON_E_CORRUPT,
                 fmt::format("the file lacks tensor {}, which the index places in it",
                             in_quotes(name)),
                 "fetch the file anew: it is of another model, or of another version")
        .on(fmt::format("{}/{}", path, index.files[*place.said]));
  }
  return manifest;
}

Error pickle_error(const std::string& path) {
  return Error(MERON_E_ARGUMENT, "it is a pickle of torch, which can run any code and is not read",
               std::string(kPickleAdvice))
      .on(path);
}

// The one name in the directory that ends so, if there is one and no more.
std::optional<std::string> only_name(const std::vector<DirectoryEntry>& entries,
                                     std::string_view suffix) {
  std::optional<std::string> found;
  for (const DirectoryEntry& entry : entries) {
    if (entry.kind == EntryKind::directory || entry.name.starts_with('.')) continue;
    if (!entry.name.ends_with(suffix)) continue;
    if (found) return {};
    found = entry.name;
  }
  return found;
}

// Of Hugging Face's names for an index or a file, the one in the directory. The file if both are
// there, as transformers has it.
Result<std::optional<std::string>> main_name(const std::string& directory) {
  for (const std::string_view name : {kHfFile, kHfIndexFile}) {
    MERON_ASSIGN(const auto found, look_at(fmt::format("{}/{}", directory, name)));
    if (found) return std::optional(std::string(name));
  }
  MERON_ASSIGN(const auto entries, list_entries(directory));
  if (auto index = only_name(entries, kIndexSuffix)) return index;
  return only_name(entries, kTensorsSuffix);
}

Error no_model_error(const std::string& path) {
  const auto entries = list_entries(path);
  if (!entries.ok()) return entries.error();
  std::vector<std::string> files, pickles;
  for (const DirectoryEntry& entry : *entries) {
    if (entry.kind == EntryKind::directory || entry.name.starts_with('.')) continue;
    if (entry.name.ends_with(kTensorsSuffix)) files.push_back(entry.name);
    if (is_pickle(entry.name)) pickles.push_back(entry.name);
  }
  std::sort(files.begin(), files.end());
  std::sort(pickles.begin(), pickles.end());
  constexpr std::string_view kNone =
      "no checkpoint is in the directory, and no model.safetensors with or without an index";
  if (!files.empty()) {
    return Error(MERON_E_NOT_FOUND, std::string(kNone),
                 fmt::format("name one of its files: {}{}", files.front(),
                             files.size() == 1 ? "" : ", ..."))
        .on(path);
  }
  if (!pickles.empty()) {
    return Error(MERON_E_NOT_FOUND,
                 fmt::format("the directory has {}, a pickle of torch, which can run any code and "
                             "is not read",
                             pickles.front()),
                 std::string(kPickleAdvice))
        .on(path);
  }
  return Error(MERON_E_NOT_FOUND, std::string(kNone), "look at the path, or save one first")
      .on(path);
}

}  // namespace

Result<bool> has_hf_model(const std::string& directory) {
  MERON_ASSIGN(const auto name, main_name(directory));
  return name.has_value();
}

Result<Checkpoint> open_hf_directory(const std::string& path) {
  MERON_ASSIGN(const auto name, main_name(path));
  if (!name) return no_model_error(path);
  Checkpoint out{.path = path, .manifest = {}, .foreign = true};
  const std::string file = fmt::format("{}/{}", path, *name);
  if (name->ends_with(kIndexSuffix)) {
    MERON_ASSIGN(const std::string text, read_file(file, kMaxManifest));
    const auto index = parse_hf_index(text);
    if (!index.ok()) return of_file(index, file);
    MERON_ASSIGN(out.manifest, read_sharded(path, *index, file));
    return out;
  }
  MERON_ASSIGN(const Header header, read_header(file));
  out.manifest = empty_manifest(path);
  add_file(out.manifest, *name, header);
  MERON_TRY(check_size(out.manifest, file));
  return out;
}

Result<Checkpoint> open_hf_file(const std::string& path) {
  const std::string name = base_of(path);
  if (is_pickle(name)) return pickle_error(path);
  if (!name.ends_with(kTensorsSuffix)) {
    return Error(MERON_E_ARGUMENT, "the file is no safetensors file by its name",
                 "name a directory, or a file whose name ends in .safetensors")
        .on(path);
  }
  if (const Status valid = check_file_name(name); !valid) return of_file(valid, path);
  MERON_ASSIGN(const Header header, read_header(path));
  Checkpoint out{
      .path = path, .manifest = empty_manifest(path), .foreign = true, .files_in = parent_of(path)};
  add_file(out.manifest, name, header);
  MERON_TRY(check_size(out.manifest, path));
  return out;
}

}  // namespace meron::checkpoint

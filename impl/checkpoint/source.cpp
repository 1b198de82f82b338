// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <utility>

#include "checkpoint/hf_index.h"
#include "checkpoint/safetensors.h"
#include "plan/safetensors_header.h"
#include "plan/text.h"

namespace meron::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTensorsSuffix = ".safetensors";
constexpr std::string_view kIndexSuffix = ".safetensors.index.json";
constexpr uint64_t kLengthBytes = 8;  // of a header's length
constexpr uint64_t kMaxHeader = 100'000'000;

Error gone(const std::string& path, std::string what) {
  return Error(MERON_E_NOT_FOUND, std::move(what), "copy all files of the model").on(path);
}

// The first bytes of a regular file, of which links are followed.
Result<std::string> read_head(const std::string& path, uint64_t bytes) {
  std::ifstream file(path, std::ios::binary);
  std::string head(bytes, '\0');
  file.read(head.data(), static_cast<std::streamsize>(bytes));
  if (!file) {
    return Error(MERON_E_IO, "the file cannot be read", "check its permissions, and copy it anew")
        .on(path);
  }
  return head;
}

Result<uint64_t> size_of_file(const std::string& path) {
  std::error_code failed;
  if (!fs::is_regular_file(path, failed)) {
    return gone(path, fs::exists(path, failed) ? "it is no regular file" : "there is no such file");
  }
  const uint64_t bytes = fs::file_size(path, failed);
  if (failed) return gone(path, failed.message());
  return bytes;
}

Result<SafetensorsHeader> header_of(const std::string& path, uint64_t bytes) {
  const auto read = [&]() -> Result<SafetensorsHeader> {
    const uint64_t first = std::min(bytes, kLengthBytes);
    MERON_ASSIGN(const std::string length, read_head(path, first));
    MERON_ASSIGN(const uint64_t head_bytes, safetensors_head_bytes(length, bytes));
    MERON_ASSIGN(const std::string head, read_head(path, head_bytes));
    return parse_safetensors(head, bytes);
  };
  auto header = read();
  if (header.ok()) return header;
  Error error = std::move(header).error();
  const std::string& inner = error.info().subject;
  error.info().subject = inner.empty() || inner == path ? path : fmt::format("{}, {}", path, inner);
  return error;
}

// Which file gives a tensor, by the index.
using Owners = std::map<std::string, uint32_t>;

Status check_index(const HfIndex& index, const Manifest& manifest, const std::string& directory) {
  Owners found;
  for (const Tensor& tensor : manifest.tensors) {
    found[tensor.name] = tensor.pieces.empty() ? UINT32_MAX : tensor.pieces.front().file;
  }
  for (const HfIndex::Tensor& tensor : index.tensors) {
    const auto at = found.find(tensor.name);
    if (at != found.end() && (at->second == UINT32_MAX || at->second == tensor.file)) continue;
    return Error(MERON_E_CORRUPT,
                 fmt::format("the index says that {} is in {}, which does not have it",
                             in_quotes(tensor.name), index.files[tensor.file]),
                 "copy the model anew: index and files are of two models")
        .on(directory);
  }
  return Ok{};
}

// `files`: names in the directory.
Result<Checkpoint> describe(const std::string& directory, std::vector<std::string> files) {
  Checkpoint out{.path = directory, .manifest = {}, .foreign = true};
  Manifest& manifest = out.manifest;
  manifest.id = std::string(32, '0');
  manifest.name = fs::path(directory).filename().string();
  if (!check_checkpoint_name(manifest.name).ok()) manifest.name = "model";
  manifest.created = "1970-01-01T00:00:00Z";
  manifest.writer = kForeignWriter;
  manifest.plan = "{}";
  manifest.extra = "{}";
  manifest.complete = false;
  std::map<std::string, std::string> owner;  // file of each name
  for (std::string& name : files) {
    const std::string path = fmt::format("{}/{}", directory, name);
    const auto number = static_cast<uint32_t>(manifest.files.size());
    MERON_ASSIGN(const uint64_t bytes, size_of_file(path));
    MERON_ASSIGN(SafetensorsHeader header, header_of(path, bytes));
    for (SafetensorsEntry& entry : header.entries) {
      const auto [other, added] = owner.try_emplace(entry.name, name);
      if (!added) {
        return Error(MERON_E_CORRUPT,
                     fmt::format("{} and {} both have the tensor {}", other->second, name,
                                 in_quotes(entry.name)),
                     "keep the files of one model in the directory")
            .on(directory);
      }
      Tensor tensor;
      const uint64_t size = element_bytes(entry.dtype);
      if (entry.end > entry.begin) {
        tensor.pieces.push_back({.file = number,
                                 .begin = 0,
                                 .count = (entry.end - entry.begin) / size,
                                 .offset = header.data_begin + entry.begin});
      }
      tensor.name = std::move(entry.name);
      tensor.kind = "values";
      tensor.dtype = std::move(entry.dtype);
      tensor.shape = std::move(entry.shape);
      manifest.tensors.push_back(std::move(tensor));
    }
    manifest.files.push_back({.name = std::move(name), .bytes = bytes, .crc = {}});
  }
  return out;
}

Result<Checkpoint> open_index(const std::string& directory, const std::string& name) {
  const std::string path = fmt::format("{}/{}", directory, name);
  MERON_ASSIGN(const uint64_t bytes, size_of_file(path));
  if (bytes > kMaxManifest) {
    return Error(MERON_E_PARSE, fmt::format("the index has {} bytes", bytes),
                 fmt::format("an index has at most {}", kMaxManifest))
        .on(path);
  }
  MERON_ASSIGN(const std::string text, read_head(path, bytes));
  auto index = parse_hf_index(text);
  if (!index.ok()) {
    Error error = std::move(index).error();
    error.info().subject = path;
    return error;
  }
  MERON_ASSIGN(Checkpoint out, describe(directory, index->files));
  MERON_TRY(check_index(*index, out.manifest, directory));
  return out;
}

// The one name in the directory that ends so, if it is one.
std::string only_name(const std::string& directory, std::string_view suffix) {
  std::string found;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(directory, failed)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with('.') || !name.ends_with(suffix)) continue;
    if (!found.empty()) return {};
    found = name;
  }
  return found;
}

bool has(const std::string& directory, std::string_view name) {
  std::error_code failed;
  return fs::is_regular_file(fmt::format("{}/{}", directory, name), failed);
}

}  // namespace

Result<Checkpoint> open_source(const std::string& path, const std::string& name) {
  std::error_code failed;
  if (!name.empty() || has(path, kManifestFile)) return resolve(path, name);
  if (fs::is_regular_file(path, failed)) {
    const fs::path file(path);
    if (!path.ends_with(kTensorsSuffix)) {
      return Error(MERON_E_UNSUPPORTED, "it is a file, and no safetensors file",
                   "`meron checkpoint import` makes a checkpoint of a file of torch.save")
          .on(path);
    }
    const std::string parent = file.parent_path().string();
    return describe(parent.empty() ? "." : parent, {file.filename().string()});
  }
  if (!fs::is_directory(path, failed)) return resolve(path, name);
  if (has(path, kHfIndexFile)) return open_index(path, std::string(kHfIndexFile));
  if (has(path, "model.safetensors")) return describe(path, {"model.safetensors"});
  if (const std::string index = only_name(path, kIndexSuffix); !index.empty()) {
    return open_index(path, index);
  }
  if (std::string file = only_name(path, kTensorsSuffix); !file.empty()) {
    return describe(path, {std::move(file)});
  }
  auto found = resolve(path, name);
  if (!found.ok() && found.error().code() == MERON_E_NOT_FOUND &&
      (has(path, "pytorch_model.bin") || has(path, "pytorch_model.bin.index.json"))) {
    return Error(
               MERON_E_UNSUPPORTED, "the model is pickled (pytorch_model.bin)",
               "`meron checkpoint import` makes a checkpoint of it, without running what is in it")
        .on(path);
  }
  return found;
}

}  // namespace meron::checkpoint

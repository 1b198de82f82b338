// SPDX-License-Identifier: Apache-2.0
// `meron checkpoint inspect`, `verify` and `list`.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/human_bytes.h"
#include "checkpoint/verify.h"
#include "tools/meron/checkpoint.h"
#include "tools/meron/failure.h"
#include "tools/meron/text.h"

namespace meron::tools {
namespace {

using checkpoint::Manifest;
using checkpoint::Tensor;
using Json = nlohmann::ordered_json;

std::string plan_name(const Manifest& manifest) {
  const Json plan = Json::parse(manifest.origin.plan, nullptr, false);
  if (!plan.is_object() || !plan.contains("name") || !plan["name"].is_string()) return {};
  return plan["name"];
}

uint64_t file_bytes(const Manifest& manifest) {
  uint64_t bytes = 0;
  for (const auto& file : manifest.files) bytes += file.bytes;
  return bytes;
}

// "12,345,678"
std::string grouped(uint64_t number) {
  const std::string digits = fmt::format("{}", number);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

// Every state that one param or tensor has.
struct Row {
  std::string dtype, shape, kinds;
  uint64_t elements = 0;
  uint64_t bytes = 0;
};

// By name, in the order of the manifest.
std::vector<std::pair<std::string, Row>> rows_of(const Manifest& manifest) {
  std::vector<std::pair<std::string, Row>> rows;
  std::map<std::string_view, size_t> index;
  for (const Tensor& tensor : manifest.tensors) {
    const auto [at, added] = index.emplace(tensor.name, rows.size());
    if (added) rows.emplace_back(tensor.name, Row{});
    Row& row = rows[at->second].second;
    if (added || tensor.kind == "values") {
      row.dtype = tensor.dtype;
      row.shape = shape_text(tensor);
      row.elements = elements_of(tensor);
    }
    row.kinds += fmt::format("{}{}", row.kinds.empty() ? "" : ", ", tensor.kind);
    row.bytes += bytes_of(tensor);
  }
  return rows;
}

// "h.*.attn.w" of "h.11.attn.w": components that are numbers.
std::string pattern_of(const std::string& name) {
  std::string out;
  for (size_t at = 0; at <= name.size();) {
    const size_t end = std::min(name.find('.', at), name.size());
    const std::string part = name.substr(at, end - at);
    const bool number = !part.empty() && std::all_of(part.begin(), part.end(), [](char c) {
      return std::isdigit(static_cast<unsigned char>(c)) != 0;
    });
    out += number ? "*" : part;
    if (end < name.size()) out += '.';
    at = end + 1;
  }
  return out;
}

struct Group {
  std::string name;  // the pattern, or the name of its only tensor
  uint64_t count = 0;
  Row row;
};

std::vector<Group> groups_of(const Manifest& manifest, bool all) {
  std::vector<Group> groups;
  std::map<std::string, size_t> index;
  for (auto& [name, row] : rows_of(manifest)) {
    const std::string pattern = all ? name : pattern_of(name);
    const std::string key = fmt::format("{}|{}|{}|{}", pattern, row.dtype, row.shape, row.kinds);
    const auto [at, added] = index.emplace(key, groups.size());
    if (added) {
      groups.push_back({name, 1, row});
      continue;
    }
    Group& group = groups[at->second];
    group.name = pattern;
    ++group.count;
    group.row.bytes += row.bytes;
  }
  return groups;
}

void print_head(const checkpoint::Checkpoint& found) {
  const Manifest& manifest = found.manifest;
  uint64_t values = 0, tensors = 0;
  for (const Tensor& tensor : manifest.tensors) {
    if (tensor.kind == "values") values += elements_of(tensor), ++tensors;
  }
  std::vector<std::vector<std::string>> lines;
  if (found.foreign) {
    lines.push_back({"model", found.path + " (Hugging Face)"});
  } else {
    const std::string plan = plan_name(manifest);
    lines.push_back({"checkpoint", found.path});
    lines.push_back({"step", fmt::format("{}", manifest.step)});
    lines.push_back(
        {"saved", fmt::format("{} by {}", manifest.origin.created, manifest.origin.writer)});
    lines.push_back({"ranks", fmt::format("{}{}{}", manifest.origin.world,
                                          plan.empty() ? "" : fmt::format(", plan {}", plan),
                                          manifest.origin.nodes > 1
                                              ? fmt::format(", on {} nodes", manifest.origin.nodes)
                                              : "")});
    for (const auto& optimizer : manifest.optimizers) {
      lines.push_back({"optimizer", fmt::format("{}, {} steps, {} group{}", optimizer.rule,
                                                optimizer.steps, optimizer.groups.size(),
                                                optimizer.groups.size() == 1 ? "" : "s")});
    }
    lines.push_back({"state", manifest.complete ? "whole"
                                                : "in part (values only, or without "
                                                  "frozen params)"});
    if (manifest.extra != "{}") {
      lines.push_back({"extra", fmt::format("{} of JSON", human_bytes(manifest.extra.size()))});
    }
  }
  lines.push_back(
      {"size", fmt::format("{} in {} file{}", human_bytes(file_bytes(manifest)),
                           manifest.files.size(), manifest.files.size() == 1 ? "" : "s")});
  lines.push_back({"values", fmt::format("{} in {} tensors", grouped(values), grouped(tensors))});
  fmt::print("{}\n", in_columns(lines, 2));
}

Json json_of(const checkpoint::Checkpoint& found) {
  const Manifest& manifest = found.manifest;
  Json tensors = Json::array(), files = Json::array();
  for (const Tensor& tensor : manifest.tensors) {
    tensors.push_back({{"name", tensor.name},
                       {"kind", tensor.kind},
                       {"dtype", tensor.dtype},
                       {"shape", tensor.shape},
                       {"bytes", bytes_of(tensor)},
                       {"pieces", tensor.pieces.size()}});
  }
  for (const auto& file : manifest.files) {
    files.push_back({{"name", file.name}, {"rank", file.rank}, {"bytes", file.bytes}});
  }
  Json optimizers = Json::array();
  for (const auto& optimizer : manifest.optimizers) {
    optimizers.push_back({{"rule", optimizer.rule},
                          {"steps", optimizer.steps},
                          {"groups", optimizer.groups.size()}});
  }
  return {{"path", found.path},
          {"format", found.foreign ? "safetensors" : "meron"},
          {"name", manifest.name},
          {"step", manifest.step},
          {"created", manifest.origin.created},
          {"writer", manifest.origin.writer},
          {"world", manifest.origin.world},
          {"nodes", manifest.origin.nodes},
          {"complete", manifest.complete},
          {"bytes", file_bytes(manifest)},
          {"plan", Json::parse(manifest.origin.plan, nullptr, false)},
          {"optimizers", optimizers},
          {"extra", Json::parse(manifest.extra, nullptr, false)},
          {"files", files},
          {"tensors", tensors}};
}

std::string print_json(const Json& json) {
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

// A checkpoint whose files need not be there: they are what verify looks at.
checkpoint::Checkpoint open_damaged(const Which& which) {
  const std::string path = which.name.empty() ? which.path : which.path + "/" + which.name;
  auto manifest = checkpoint::read_manifest(path);
  if (manifest.ok()) {
    checkpoint::Checkpoint found;
    found.path = path;
    found.manifest = std::move(manifest).value();
    return found;
  }
  if (manifest.error().code() != MERON_E_NOT_FOUND) fail(manifest.error());
  return open_checkpoint(which);
}

std::string first_few(const std::vector<std::string>& names) {
  constexpr size_t kShown = 4;
  std::string text;
  for (size_t i = 0; i < std::min(kShown, names.size()); ++i) {
    text += fmt::format("{}{}", i > 0 ? ", " : "", names[i]);
  }
  if (names.size() > kShown) text += fmt::format(" and {} more", names.size() - kShown);
  return text.empty() ? "the header" : text;
}

void print_not_finite(const std::vector<checkpoint::NotFiniteTensor>& tensors) {
  constexpr size_t kShown = 10;
  for (size_t i = 0; i < std::min(kShown, tensors.size()); ++i) {
    fmt::print("note     {} has {} NaN and {} infinite elements\n", tensors[i].name,
               tensors[i].found.nans, tensors[i].found.infinities);
  }
  if (tensors.size() > kShown) {
    fmt::print("note     and {} more tensors have some\n", tensors.size() - kShown);
  }
}

}  // namespace

int inspect_checkpoint(const InspectOptions& options) {
  const checkpoint::Checkpoint found = open_checkpoint(options.which);
  if (options.json) {
    fmt::print("{}\n", print_json(json_of(found)));
    return kSuccess;
  }
  print_head(found);
  std::vector<std::vector<std::string>> table = {
      {"tensor", "dtype", "shape", "kinds", "count", "bytes"}};
  for (const Group& group : groups_of(found.manifest, options.all)) {
    table.push_back({group.name, group.row.dtype, group.row.shape, group.row.kinds,
                     fmt::format("{}", group.count), human_bytes(group.row.bytes)});
  }
  fmt::print("{}", in_columns(table, 4));
  return kSuccess;
}

int verify_checkpoint(const Which& which, bool json) {
  const checkpoint::Checkpoint found = open_damaged(which);
  ProgressLine progress("verified", file_bytes(found.manifest));
  const checkpoint::Verified result =
      must(checkpoint::verify(found, [&](uint64_t bytes) { progress.add(bytes); }));
  const double seconds = std::max(progress.seconds(), 1e-9);
  progress.clear();
  const bool good = result.damages.empty() && found.skipped.empty();
  if (json) {
    Json skipped = Json::array();
    for (const auto& each : found.skipped) {
      skipped.push_back({{"name", each.name}, {"reason", each.reason}});
    }
    Json damages = Json::array();
    for (const auto& damage : result.damages) {
      damages.push_back({{"file", damage.file},
                         {"offset", damage.offset},
                         {"bytes", damage.bytes},
                         {"what", damage.what},
                         {"tensors", damage.tensors}});
    }
    Json not_finite = Json::array();
    for (const auto& [name, of_tensor] : result.not_finite) {
      not_finite.push_back(
          {{"tensor", name}, {"nans", of_tensor.nans}, {"infinities", of_tensor.infinities}});
    }
    fmt::print("{}\n", print_json({{"path", found.path},
                                   {"not_finite", not_finite},
                                   {"bytes", result.bytes},
                                   {"blocks", result.blocks},
                                   {"absent_nodes", result.absent_nodes},
                                   {"checksums", !found.foreign},
                                   {"skipped", skipped},
                                   {"damages", damages}}));
    return good ? kSuccess : kRuntimeError;
  }
  for (const auto& damage : result.damages) {
    fmt::print("damaged  {} at byte {} ({}): {}\n", damage.file, damage.offset,
               human_bytes(damage.bytes), damage.what);
    if (damage.file == checkpoint::kManifestFile) continue;
    fmt::print("         tensors: {}\n", first_few(damage.tensors));
  }
  print_not_finite(result.not_finite);
  for (const uint32_t node : result.absent_nodes) {
    fmt::print("absent   the files of node {}: verify them where they are\n", node);
  }
  const std::string rate =
      fmt::format("{} in {:.1f} s, {}/s", human_bytes(result.bytes), seconds,
                  human_bytes(static_cast<uint64_t>(static_cast<double>(result.bytes) / seconds)));
  if (!result.damages.empty()) {
    fmt::print("{}: {} damaged place{} ({})\n", found.path, result.damages.size(),
               result.damages.size() == 1 ? "" : "s", rate);
    return kRuntimeError;
  }
  fmt::print("{}: {} ({})\n", found.path,
             found.foreign ? "headers, sizes and index fit; such files have no checksums"
                           : fmt::format("all {} blocks of {} files are as they were written",
                                         result.blocks, found.manifest.files.size()),
             rate);
  return good ? kSuccess : kRuntimeError;
}

int list_checkpoints(const ListOptions& options) {
  const std::vector<checkpoint::Entry> entries = must(checkpoint::list(options.root));
  if (options.json) {
    Json out = Json::array();
    for (const checkpoint::Entry& entry : entries) {
      out.push_back({{"name", entry.name},
                     {"step", entry.step},
                     {"created", entry.created},
                     {"bytes", entry.bytes},
                     {"whole_state", entry.whole_state},
                     {"complete", entry.complete()},
                     {"defect", entry.defect}});
    }
    fmt::print("{}\n", print_json(out));
    return kSuccess;
  }
  if (entries.empty()) {
    fmt::print("no checkpoint is in {}\n", options.root);
    return kSuccess;
  }
  std::vector<std::vector<std::string>> table = {{"name", "created", "state", "step", "size"}};
  for (const checkpoint::Entry& entry : entries) {
    if (entry.complete()) {
      table.push_back({entry.name, entry.created, entry.whole_state ? "whole" : "in part",
                       fmt::format("{}", entry.step), human_bytes(entry.bytes)});
    } else {
      table.push_back({entry.name, "", "incomplete: " + entry.defect, "", ""});
    }
  }
  fmt::print("{}", in_columns(table, 3));
  return kSuccess;
}

}  // namespace meron::tools

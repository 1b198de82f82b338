// SPDX-License-Identifier: Apache-2.0
#include "saving/source_names.h"

#include <algorithm>
#include <utility>

#include "base/hash.h"
#include "checkpoint/manifest.h"
#include "plan/json_text.h"

namespace meron {
namespace {

constexpr const char* kSubject = "options.mapping";

Result<std::vector<std::string>> tensors_of(const JsonValue& value) {
  std::vector<std::string> names;
  const auto add = [&](const JsonValue& each) -> Status {
    MERON_ASSIGN(const std::string_view name, each.string());
    if (name.empty()) {
      return each.error(MERON_E_PARSE, "is empty", "give the name of a tensor of the checkpoint");
    }
    names.emplace_back(name);
    return Ok{};
  };
  if (!value.array().ok()) {
    MERON_TRY(add(value));
    return names;
  }
  for (auto each = value.first(); each; each = each->next()) MERON_TRY(add(*each));
  if (!names.empty()) return names;
  return value.error(MERON_E_PARSE, "names no tensor", "give one name or more");
}

}  // namespace

Result<SourceNames> SourceNames::parse(std::string_view mapping, std::string_view claimed) {
  SourceNames out;
  if (!mapping.empty()) {
    MERON_ASSIGN(const JsonText json,
                 JsonText::parse(mapping, kSubject, {checkpoint::kMaxManifest, /*depth=*/2}));
    MERON_TRY(json.root().object());
    for (auto member = json.root().first(); member; member = member->next()) {
      MERON_ASSIGN(auto names, tensors_of(*member));
      out.mapping.emplace(member->key(), std::move(names));
    }
  }
  while (!claimed.empty()) {
    const size_t end = std::min(claimed.find('\n'), claimed.size());
    if (end > 0) out.claimed.emplace(claimed.substr(0, end));
    claimed.remove_prefix(std::min(end + 1, claimed.size()));
  }
  return out;
}

uint64_t SourceNames::hash() const {
  uint64_t value = hash_combine(mapping.size(), claimed.size());
  for (const auto& [param, tensors] : mapping) {
    value = hash_combine(hash_combine(value, hash_text(param)), tensors.size());
    for (const std::string& name : tensors) value = hash_combine(value, hash_text(name));
  }
  for (const std::string& name : claimed) value = hash_combine(value, hash_text(name));
  return value;
}

}  // namespace meron

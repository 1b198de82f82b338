// SPDX-License-Identifier: Apache-2.0
#include "saving/names.h"

#include <fmt/format.h>

#include <set>

#include "base/hash.h"
#include "checkpoint/manifest.h"
#include "plan/json_text.h"

namespace meron {

Result<SavedNames> SavedNames::parse(std::string_view text) {
  if (text.empty()) return SavedNames();
  MERON_ASSIGN(const JsonText json,
               JsonText::parse(text, "options.mapping", {checkpoint::kMaxManifest, /*depth=*/1}));
  MERON_TRY(json.root().object());
  SavedNames out;
  for (auto member = json.root().first(); member; member = member->next()) {
    MERON_ASSIGN(const std::string_view name, member->string());
    out.names_.emplace(member->key(), name);
  }
  return out;
}

bool SavedNames::left_out(const Param& param) const {
  const auto found = names_.find(param.desc.name);
  return found != names_.end() && found->second.empty();
}

void SavedNames::remove(const Unit& unit) {
  for (const auto& param : unit.params()) names_.erase(param->desc.name);
}

const std::string& SavedNames::of(const Param& param) const {
  const auto found = names_.find(param.desc.name);
  return found == names_.end() ? param.desc.name : found->second;
}

Status SavedNames::check(std::span<const UnitState> units) const {
  if (names_.empty()) return Ok{};
  std::set<std::string_view> params, used;
  for (const UnitState& unit : units) {
    for (const auto& param : unit.unit().params()) {
      params.insert(param->desc.name);
      if (left_out(*param) || used.insert(of(*param)).second) continue;
      return Error(MERON_E_ARGUMENT, fmt::format("two params would be called '{}'", of(*param)),
                   "map each to a name of its own")
          .on("options.mapping");
    }
  }
  for (const auto& [param, name] : names_) {
    if (params.contains(param)) continue;
    return Error(MERON_E_ARGUMENT, fmt::format("no unit has a param '{}'", param),
                 "map params by the names they were made with")
        .on("options.mapping");
  }
  return Ok{};
}

uint64_t SavedNames::hash() const {
  uint64_t value = 0;
  for (const auto& [param, name] : names_) {
    value = hash_combine(hash_combine(value, hash_text(param)), hash_text(name));
  }
  return value;
}

uint64_t SavedNames::hash_of(const Result<SavedNames>& parsed, std::string_view text) {
  return parsed.ok() ? parsed->hash() : hash_text(text);
}

}  // namespace meron

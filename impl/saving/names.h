// SPDX-License-Identifier: Apache-2.0
// What params are called in files, where a program has other names for them.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "state/unit_state.h"

namespace meron {

class SavedNames {
 public:
  // `text`: a JSON object, "PARAM": "NAME"; "" leaves the param out. No text: no
  // names. MERON_E_PARSE, MERON_E_ARGUMENT.
  static Result<SavedNames> parse(std::string_view text);

  bool left_out(const Param& param) const;
  // Removes the params of a unit that is not among those given to check().
  void remove(const Unit& unit);
  const std::string& of(const Param& param) const;
  // MERON_E_ARGUMENT for a name of no param, and for two params with one name.
  Status check(std::span<const UnitState> units) const;
  // The same for equal names.
  uint64_t hash() const;
  // Of parse(text): also of a text that does not parse, so that ranks can compare theirs.
  static uint64_t hash_of(const Result<SavedNames>& parsed, std::string_view text);

 private:
  std::map<std::string, std::string, std::less<>> names_;  // by param
};

}  // namespace meron

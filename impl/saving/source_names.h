// SPDX-License-Identifier: Apache-2.0
// Which tensors of a checkpoint a load takes, where their names are not those of the params.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace meron {

// The same on all ranks.
struct SourceNames {
  // By param: the tensors that make it, one after the other along the first dimension.
  std::map<std::string, std::vector<std::string>, std::less<>> mapping = {};
  std::set<std::string, std::less<>> claimed = {};  // values that the caller reads itself
  // Params of units that the load leaves out: their tensors are neither read nor unexpected.
  std::set<std::string, std::less<>> left_out = {};

  // `mapping`: a JSON object, "PARAM": "TENSOR" or "PARAM": ["TENSOR", ...]; `claimed`: a name per
  // line. Either may be empty. MERON_E_PARSE names the line and the key.
  static Result<SourceNames> parse(std::string_view mapping, std::string_view claimed);
  uint64_t hash() const;
};

}  // namespace meron

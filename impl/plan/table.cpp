// SPDX-License-Identifier: Apache-2.0
#include "plan/table.h"

#include <fmt/format.h>

#include "plan/columns.h"

namespace meron {

std::string to_table(const Plan& plan) {
  const auto row = [](const char* kind, const Row& from, const char* no_dtype, bool travels) {
    return std::vector<std::string>{kind, std::string(name_of(from.sharding)),
                                    std::string(name_of(from.tier)),
                                    from.dtype ? std::string(name_of(*from.dtype)) : no_dtype,
                                    travels ? std::string(name_of(from.codec)) : "-"};
  };
  std::string out = fmt::format("plan {}\n", plan.name);
  out += in_columns({{"kind", "sharded over", "tier", "dtype", "wire codec"},
                     row("param", plan.param, "as registered", true),
                     row("gradient", plan.gradient, "as param", true),
                     row("optimizer", plan.optimizer, "-", false)},
                    5);
  if (is_sharded(plan.gradient)) {
    out += fmt::format("gradient buckets in the ring: {}\n", plan.gradient_buckets);
  }
  return out;
}

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
#include "tools/meron/plan_fit.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/human_bytes.h"
#include "tools/meron/text.h"

namespace meron::tools {

using Json = nlohmann::ordered_json;

Fit fit_of(const Json& prediction, const meron_workload& workload, uint64_t available) {
  const auto total = [](const Json& rank, const char* tier) {
    return rank["memory"][tier]["total"]["bytes"].get<uint64_t>();
  };
  Fit fit{.available = available};
  const Json& ranks = prediction["ranks"];
  for (const Json& rank : ranks) fit.on_device = fit.on_device || total(rank, "device") > 0;
  fit.ranks = 1;
  if (!fit.on_device) {
    const uint64_t node = workload.ranks_per_node == 0 ? workload.ranks : workload.ranks_per_node;
    fit.ranks = std::min<uint64_t>(node, ranks.size());
  }
  for (size_t first = 0; first < ranks.size(); first += fit.ranks) {
    uint64_t bytes = 0;
    for (size_t r = first; r < std::min<size_t>(first + fit.ranks, ranks.size()); ++r) {
      bytes += total(ranks[r], fit.on_device ? "device" : "host");
    }
    fit.needed = std::max(fit.needed, bytes);
  }
  return fit;
}

std::string sentence(const Fit& fit) {
  const std::string who = fit.on_device
                              ? "a rank's device holds"
                              : fmt::format("the {} rank{} of a machine hold{}", fit.ranks,
                                            fit.ranks == 1 ? "" : "s", fit.ranks == 1 ? "s" : "");
  const std::string needed = human_bytes(fit.needed), given = human_bytes(fit.available);
  if (fit.fits()) {
    return fmt::format("It fits: {} {} of {}; {} remain for activations and all else.\n", who,
                       needed, given, human_bytes(fit.available - fit.needed));
  }
  return fmt::format("It does not fit: {} {}, {} more than {}.\n", who, needed,
                     human_bytes(fit.needed - fit.available), given);
}

Json with_fit(Json prediction, const meron_workload& workload, uint64_t available) {
  prediction["not_counted"] = {"activations", "the trainer's own memory"};
  if (available == 0) return prediction;
  const Fit fit = fit_of(prediction, workload, available);
  prediction["memory"] = {{"of", fit.on_device ? "device" : "machine"},
                          {"ranks", fit.ranks},
                          {"needed_bytes", fit.needed},
                          {"available_bytes", fit.available},
                          {"fits", fit.fits()}};
  return prediction;
}

}  // namespace meron::tools

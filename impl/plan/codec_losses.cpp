// SPDX-License-Identifier: Apache-2.0
#include "plan/codec_losses.h"

#include <fmt/format.h>

namespace meron {

std::vector<std::string> codec_losses(const Plan& plan) {
  std::vector<std::string> losses;
  const Codec& param = plan.param.codec;
  if (param.kind == CodecKind::int4 && !param.difference) {
    const bool on_host = plan.param.tier == Tier::host;
    losses.push_back(fmt::format(
        "plan '{}': the parameters travel in int4 without difference, and models train worse. A "
        "small one ended at a loss of 0.24 instead of 0.07, and at NaN with a higher learning "
        "rate. Set the codec of param to {}\"int8\"",
        plan.name,
        on_host ? R"({"kind": "int4", "difference": true}, which takes the same bytes, or to )"
                : ""));
  }
  const Codec& gradient = plan.gradient.codec;
  if (gradient.kind == CodecKind::int4 && !gradient.stochastic && !gradient.hadamard &&
      !gradient.feedback) {
    losses.push_back(fmt::format(
        "plan '{}': the gradients travel in int4, rounded to nearest, and nothing makes up for "
        "what is lost. If a block has one large element, the mean of many gradients is off by 48 "
        "%. Set the codec of gradient to {{\"kind\": \"int4\", \"feedback\": true}} (0.1 %, for 4 "
        "bytes per element of a shard; in a DeepSpeed config: zeropp_loco_param). Without memory, "
        "add \"hadamard\": true (12 %) or \"rounding\": \"stochastic\" (3 %)",
        plan.name));
  }
  return losses;
}

}  // namespace meron

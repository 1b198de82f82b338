// SPDX-License-Identifier: Apache-2.0
// meron/cpp/plan.hpp: the strategy as a table.
#ifndef MERON_CPP_PLAN_HPP
#define MERON_CPP_PLAN_HPP

#include <string_view>

#include "meron/cpp/base.hpp"
#include "meron/cpp/methods.hpp"
#include "meron/cpp/values.hpp"
#include "meron/plan.h"

namespace meron {
inline namespace v1 {

// Format of a prediction.
enum class Form : uint32_t {
  json = 0,
  table = 1
};

// The strategy: the ranks that share each kind of state. A context keeps its own reference.
class Plan : public Handle<meron_plan, meron_plan_release>, public detail::PlanMethods<Plan> {
 public:
  using Handle::Handle;

  // "zero0" to "zero3"; for several nodes "mics(4)", "hpz(4)", "zeropp(4)"; the argument is the
  // number of ranks in a group, by default a node's.
  static Plan preset(Text name) { return Plan(detail::receive(meron_plan_preset, name.c_str())); }
  // From JSON; docs/plan.md has every key.
  static Plan parse(std::string_view json) {
    return Plan(detail::receive(meron_plan_parse, json.data(), json.size()));
  }

  // Bytes per link and step and peak bytes per tier. `model` is JSON as meron_plan_predict reads
  // it.
  String predict(std::string_view model, const Workload& workload = {},
                 Form form = Form::json) const {
    const meron_workload raw = workload.raw();
    return String(detail::receive(meron_plan_predict, handle(), model.data(), model.size(), &raw,
                                  static_cast<uint32_t>(form)));
  }
};

// Estimates the cost of every known strategy on a cluster and ranks the strategies, the best first.
// `model` and `cluster` are JSON as meron_plan_rank_cluster reads it; computation per micro-batch
// is given in tokens per device or in seconds.
inline String rank_cluster(std::string_view model, std::string_view cluster,
                           const Workload& workload = {}, uint32_t tokens = 0,
                           double compute_seconds = 0.0, Form form = Form::json) {
  const meron_workload raw = workload.raw();
  return String(detail::receive(meron_plan_rank_cluster, model.data(), model.size(), cluster.data(),
                                cluster.size(), &raw, tokens, compute_seconds,
                                static_cast<uint32_t>(form)));
}

// The header of a safetensors file (its first bytes: 8 of length, then the header) as the model
// JSON that Plan::predict reads. `file_bytes` is the size of the file.
inline String model_from_safetensors(std::string_view header, uint64_t file_bytes) {
  return String(detail::receive(meron_plan_model_from_safetensors,
                                static_cast<const void*>(header.data()), header.size(),
                                file_bytes));
}

}  // namespace v1
}  // namespace meron

#endif  // MERON_CPP_PLAN_HPP

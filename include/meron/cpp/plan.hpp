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
inline namespace MERON_CPP_NAMESPACE {

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
  static Plan preset(const Text& name) {
    return Plan(adopt, detail::receive(meron_plan_preset, name.c_str()));
  }
  // From JSON; docs/plan.md has every key.
  static Plan parse(std::string_view json) {
    return Plan(adopt, detail::receive(meron_plan_parse, json.data(), json.size()));
  }
  static Plan parse(const String& json) {
    const std::string_view text = json;
    return parse(text);
  }

  // Bytes per link and step and peak bytes per tier. `model` is JSON as meron_plan_predict reads
  // it.
  String predict(std::string_view model, const Workload& workload = {},
                 Form form = Form::json) const {
    const meron_workload raw = workload.raw();
    return String(adopt, detail::receive(meron_plan_predict, handle(), model.data(), model.size(),
                                         &raw, static_cast<uint32_t>(form)));
  }
};

}  // namespace MERON_CPP_NAMESPACE
}  // namespace meron

#endif  // MERON_CPP_PLAN_HPP

// SPDX-License-Identifier: Apache-2.0
#include "saving/matching.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

namespace meron {
namespace {

std::string words_of(std::string_view kind, const std::string& name) {
  return kind == "values" ? name : fmt::format("{} of {}", kind, name);
}

bool is_float(std::string_view dtype) {
  return dtype == "F32" || dtype == "BF16" || dtype == "F16";
}

void add_list(std::string& text, std::string_view what, const std::vector<std::string>& names) {
  if (names.empty()) return;
  constexpr size_t kShown = 10;
  text += fmt::format("{}{}: ", text.empty() ? "" : "; ", what);
  for (size_t i = 0; i < std::min(kShown, names.size()); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ", ", names[i]);
  }
  if (names.size() > kShown) text += fmt::format(" and {} more", names.size() - kShown);
}

}  // namespace

std::string Differences::text() const {
  std::string text;
  add_list(text, "missing", missing);
  add_list(text, "unexpected", unexpected);
  add_list(text, "of another shape or dtype", mismatched);
  return text;
}

const checkpoint::Tensor* Matching::find(std::string_view kind, const std::string& name) const {
  const auto found = tensors_.find({kind, name});
  return found == tensors_.end() ? nullptr : found->second;
}

const checkpoint::Tensor* Matching::choose(const Param& param, StateKind kind) const {
  const std::string& name = param.desc.name;
  if (kind == StateKind::values && param.desc.dtype == DType::f32) {
    if (const auto* const master = find("master", name); master != nullptr) return master;
  }
  const auto* const same = find(name_of(kind), name);
  if (same == nullptr && kind == StateKind::master) return find("values", name);
  return same;
}

Matching::Matching(const checkpoint::Manifest& manifest, std::span<const UnitState> units,
                   bool values_only)
    : values_only_(values_only) {
  for (const checkpoint::Tensor& tensor : manifest.tensors) {
    tensors_.emplace(std::pair<std::string_view, std::string_view>(tensor.kind, tensor.name),
                     &tensor);
  }
  std::set<const checkpoint::Tensor*> used;
  std::set<std::string_view> names;
  for (const UnitState& unit : units) {
    for (const auto& param : unit.unit().params()) names.insert(param->desc.name);
    for (const State& state : unit.states()) {
      if (state.kind == StateKind::residual) continue;
      if (values_only && state.kind != StateKind::values && state.kind != StateKind::master)
        continue;
      for (const auto& param : unit.unit().params()) {
        if (param->place.flat != state.flat) continue;
        const checkpoint::Tensor* const source = choose(*param, state.kind);
        const std::string words = words_of(name_of(state.kind), param->desc.name);
        if (source == nullptr) {
          differences_.missing.push_back(words);
          continue;
        }
        used.insert(source);
        if (source->shape != param->desc.shape || !is_float(source->dtype)) {
          differences_.mismatched.push_back(
              fmt::format("{} ({} [{}] in the checkpoint, [{}] here)", words, source->dtype,
                          fmt::join(source->shape, ","), fmt::join(param->desc.shape, ",")));
          continue;
        }
        sources_[{param.get(), state.kind}] = source;
      }
    }
  }
  for (const checkpoint::Tensor& tensor : manifest.tensors) {
    const bool state_of_param = tensor.kind != "values" && names.count(tensor.name) != 0;
    // States that this optimizer does not keep, or that another plan needs, are no difference.
    if (used.count(&tensor) != 0 || state_of_param || tensor.kind.starts_with("extra")) continue;
    if (tensor.kind == "values" && names.count(tensor.name) != 0) continue;
    if (values_only && tensor.kind != "values") continue;
    differences_.unexpected.push_back(words_of(tensor.kind, tensor.name));
  }
  for (auto* const list :
       {&differences_.missing, &differences_.unexpected, &differences_.mismatched}) {
    std::sort(list->begin(), list->end());
  }
}

std::vector<const checkpoint::Tensor*> Matching::residuals(const Param& param, uint64_t replica,
                                                           uint64_t replicas) const {
  std::vector<const checkpoint::Tensor*> out;
  if (values_only_) return out;
  for (uint64_t r = 0;; ++r) {
    const auto* const tensor = find(fmt::format("residual.{}", r), param.desc.name);
    if (tensor == nullptr) return out;
    if (r % replicas == replica && tensor->shape == param.desc.shape && tensor->dtype == "F32") {
      out.push_back(tensor);
    }
  }
}

const checkpoint::Tensor* Matching::source(const Param& param, StateKind kind) const {
  const auto found = sources_.find({&param, kind});
  return found == sources_.end() ? nullptr : found->second;
}

}  // namespace meron

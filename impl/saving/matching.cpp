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
  return dtype == "F32" || dtype == "BF16" || dtype == "F16" || dtype == "F64";
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

uint64_t elements_of(const checkpoint::Tensor& tensor) {
  uint64_t count = 1;
  for (const uint64_t size : tensor.shape) count *= size;
  return count;
}

// True if the tensors, concatenated along the first dimension, have the param's shape.
bool makes(std::span<const SourceTensor> sources, const std::vector<uint64_t>& shape) {
  if (sources.size() == 1) return sources[0].tensor->shape == shape;
  uint64_t first = 0;
  for (const SourceTensor& source : sources) {
    const std::vector<uint64_t>& own = source.tensor->shape;
    if (own.empty() || own.size() != shape.size()) return false;
    if (!std::equal(own.begin() + 1, own.end(), shape.begin() + 1)) return false;
    first += own[0];
  }
  return first == shape[0];
}

std::string shapes_of(std::span<const SourceTensor> sources) {
  std::string text;
  for (const SourceTensor& source : sources) {
    text += fmt::format("{}{} [{}]", text.empty() ? "" : " + ", source.tensor->dtype,
                        fmt::join(source.tensor->shape, ","));
  }
  return text;
}

}  // namespace

std::string Differences::text() const {
  std::string text;
  add_list(text, "missing", missing);
  add_list(text, "unexpected", unexpected);
  add_list(text, "of another shape or dtype", mismatched);
  add_list(text, "mapped to tensors that the checkpoint lacks", unmapped);
  add_list(text, "mapped, and no param of a unit", unknown);
  return text;
}

const checkpoint::Tensor* Matching::find(std::string_view kind, std::string_view name) const {
  const auto found = tensors_.find({kind, name});
  return found == tensors_.end() ? nullptr : found->second;
}

std::vector<std::string> Matching::names_of(const std::string& param) const {
  const auto mapped = names_.mapping.find(param);
  if (mapped != names_.mapping.end()) return mapped->second;
  return {param};
}

std::vector<SourceTensor> Matching::find_all(std::string_view kind, const Param& param) const {
  std::vector<SourceTensor> out;
  uint64_t first = 0;
  for (const std::string& name : names_of(param.desc.name)) {
    const checkpoint::Tensor* const tensor = find(kind, name);
    if (tensor == nullptr) return {};
    out.push_back({tensor, first});
    first += elements_of(*tensor);
  }
  return out;
}

std::vector<SourceTensor> Matching::choose(const Param& param, StateKind kind) const {
  if (kind == StateKind::values && param.desc.dtype == DType::f32) {
    if (auto master = find_all("master", param); !master.empty()) return master;
  }
  auto same = find_all(name_of(kind), param);
  if (same.empty() && kind == StateKind::master) return find_all("values", param);
  return same;
}

void Matching::match(const Param& param, StateKind kind,
                     std::vector<const checkpoint::Tensor*>* used) {
  std::vector<SourceTensor> sources = choose(param, kind);
  const std::string words = words_of(name_of(kind), param.desc.name);
  if (sources.empty()) {
    differences_.missing.push_back(words);
    if (kind != StateKind::values || !names_.mapping.contains(param.desc.name)) return;
    for (const std::string& name : names_of(param.desc.name)) {
      if (find("values", name) != nullptr) continue;
      differences_.unmapped.push_back(fmt::format("{} (to {})", param.desc.name, name));
    }
    return;
  }
  for (const SourceTensor& source : sources) used->push_back(source.tensor);
  const bool floats = std::all_of(sources.begin(), sources.end(), [](const SourceTensor& source) {
    return is_float(source.tensor->dtype);
  });
  if (!floats || !makes(sources, param.desc.shape)) {
    differences_.mismatched.push_back(fmt::format("{} ({} in the checkpoint, [{}] here)", words,
                                                  shapes_of(sources),
                                                  fmt::join(param.desc.shape, ",")));
    return;
  }
  sources_[{&param, kind}] = std::move(sources);
}

Matching::Matching(const checkpoint::Manifest& manifest, std::span<const UnitState> units,
                   bool values_only, const SourceNames& names)
    : values_only_(values_only), names_(names) {
  for (const checkpoint::Tensor& tensor : manifest.tensors) {
    tensors_.emplace(std::pair<std::string_view, std::string_view>(tensor.kind, tensor.name),
                     &tensor);
  }
  std::vector<const checkpoint::Tensor*> used;
  for (const UnitState& unit : units) {
    for (const State& state : unit.states()) {
      if (state.kind == StateKind::residual) continue;
      if (values_only && state.kind != StateKind::values && state.kind != StateKind::master)
        continue;
      for (const auto& param : unit.unit().params()) {
        if (param->place.flat == state.flat) match(*param, state.kind, &used);
      }
    }
  }
  note_rest(manifest, units, std::move(used));
  for (auto* const list : {&differences_.missing, &differences_.unexpected,
                           &differences_.mismatched, &differences_.unmapped}) {
    std::sort(list->begin(), list->end());
  }
}

void Matching::note_rest(const checkpoint::Manifest& manifest, std::span<const UnitState> units,
                         std::vector<const checkpoint::Tensor*> used) {
  std::set<std::string, std::less<>> params = names_.left_out, sources;
  for (const UnitState& unit : units) {
    for (const auto& param : unit.unit().params()) params.insert(param->desc.name);
  }
  for (const std::string& param : params) {
    for (const std::string& name : names_of(param)) sources.insert(name);
  }
  for (const auto& [param, tensors] : names_.mapping) {
    if (!params.contains(param)) differences_.unknown.push_back(param);
  }
  for (const std::string& name : names_.claimed) {
    if (find("values", name) == nullptr) differences_.missing.push_back(name);
  }
  std::sort(used.begin(), used.end());
  for (const checkpoint::Tensor& tensor : manifest.tensors) {
    // States that this optimizer does not keep, or that another plan needs, are no difference.
    if (std::binary_search(used.begin(), used.end(), &tensor) || sources.contains(tensor.name)) {
      continue;
    }
    // Tensors of the caller. A param that no unit has is reported by its values.
    if (tensor.kind.starts_with("extra") || tensor.kind.starts_with("state.")) continue;
    if (names_.claimed.contains(tensor.name)) continue;
    if (values_only_ && tensor.kind != "values") continue;
    differences_.unexpected.push_back(words_of(tensor.kind, tensor.name));
  }
}

std::vector<SourceTensor> Matching::residuals(const Param& param, uint64_t replica,
                                              uint64_t replicas) const {
  std::vector<SourceTensor> out;
  if (values_only_) return out;
  for (uint64_t r = 0;; ++r) {
    const auto sources = find_all(fmt::format("residual.{}", r), param);
    if (sources.empty()) return out;
    const bool f32 = std::all_of(sources.begin(), sources.end(), [](const SourceTensor& source) {
      return source.tensor->dtype == "F32";
    });
    if (r % replicas != replica || !f32 || !makes(sources, param.desc.shape)) continue;
    out.insert(out.end(), sources.begin(), sources.end());
  }
}

std::span<const SourceTensor> Matching::source(const Param& param, StateKind kind) const {
  const auto found = sources_.find({&param, kind});
  if (found == sources_.end()) return {};
  return found->second;
}

}  // namespace meron

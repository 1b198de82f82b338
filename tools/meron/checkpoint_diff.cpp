// SPDX-License-Identifier: Apache-2.0
// `meron checkpoint diff`: two checkpoints, tensor by tensor.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "checkpoint/floats.h"
#include "checkpoint/tensor_reader.h"
#include "tools/meron/checkpoint.h"
#include "tools/meron/failure.h"
#include "tools/meron/text.h"

namespace meron::tools {
namespace {

using checkpoint::Tensor;
using checkpoint::TensorReader;
using Json = nlohmann::ordered_json;

constexpr uint64_t kElements = 1 << 20;  // at a time

bool is_float(const std::string& dtype) {
  return dtype == "F32" || dtype == "BF16" || dtype == "F16" || dtype == "F64";
}

struct Difference {
  std::string kind, name;
  std::string verdict;  // "equal", "different", "only in A", "another shape", ...
  uint64_t differing = 0, elements = 0;
  bool numbers = false;  // the two that follow are known
  double absolute = 0, relative = 0;

  bool equal() const { return verdict == "equal"; }
};

void to_doubles(const std::byte* from, const std::string& dtype, uint64_t count,
                std::vector<double>& out, std::vector<float>& between) {
  out.resize(count);
  if (dtype == "F64") {
    std::memcpy(out.data(), from, count * sizeof(double));
    return;
  }
  between.resize(count);
  checkpoint::convert_floats(between.data(), "F32", from, dtype, count);
  std::copy(between.begin(), between.end(), out.begin());
}

class Comparer {
 public:
  Comparer(TensorReader& a, TensorReader& b, ProgressLine& progress)
      : a_(a), b_(b), progress_(progress) {}

  Difference compare(const std::string& kind, const std::string& name) {
    Difference out{.kind = kind, .name = name, .verdict = {}};
    const Tensor* const one = a_.find(kind, name);
    const Tensor* const other = b_.find(kind, name);
    if (one == nullptr || other == nullptr) {
      out.verdict = other == nullptr ? "only in A" : "only in B";
      return out;
    }
    out.elements = elements_of(*one);
    if (one->shape != other->shape) {
      out.verdict = fmt::format("shape {} and {}", shape_text(*one), shape_text(*other));
      return out;
    }
    const bool same_dtype = one->dtype == other->dtype;
    if (same_dtype || (is_float(one->dtype) && is_float(other->dtype))) values(*one, *other, out);
    if (!same_dtype) {
      out.verdict = fmt::format("dtype {} and {}", one->dtype, other->dtype);
    } else {
      out.verdict = out.differing == 0 ? "equal" : "different";
    }
    return out;
  }

 private:
  void values(const Tensor& one, const Tensor& other, Difference& out) {
    const uint64_t width_a = checkpoint::element_bytes(one.dtype);
    const uint64_t width_b = checkpoint::element_bytes(other.dtype);
    out.numbers = is_float(one.dtype);
    for (uint64_t at = 0; at < out.elements; at += kElements) {
      const uint64_t count = std::min(kElements, out.elements - at);
      bytes_a_.resize(count * width_a);
      bytes_b_.resize(count * width_b);
      must(a_.read(one.kind, one.name, at, count, bytes_a_.data(), bytes_a_.size()));
      must(b_.read(other.kind, other.name, at, count, bytes_b_.data(), bytes_b_.size()));
      progress_.add(bytes_a_.size() + bytes_b_.size());
      if (one.dtype == other.dtype && bytes_a_ == bytes_b_) continue;
      if (!out.numbers) {
        for (uint64_t i = 0; i < count; ++i) {
          out.differing +=
              std::memcmp(&bytes_a_[i * width_a], &bytes_b_[i * width_a], width_a) != 0;
        }
        continue;
      }
      to_doubles(bytes_a_.data(), one.dtype, count, doubles_a_, floats_);
      to_doubles(bytes_b_.data(), other.dtype, count, doubles_b_, floats_);
      for (uint64_t i = 0; i < count; ++i) number(one, other, i, out);
    }
  }
  // A NaN equals a NaN of the same bits, and 0 is not -0: what counts is bits, if the dtypes agree.
  void number(const Tensor& one, const Tensor& other, uint64_t i, Difference& out) const {
    const double x = doubles_a_[i], y = doubles_b_[i];
    const uint64_t width = checkpoint::element_bytes(one.dtype);
    const bool same = one.dtype == other.dtype
                          ? std::memcmp(&bytes_a_[i * width], &bytes_b_[i * width], width) == 0
                          : x == y || (std::isnan(x) && std::isnan(y));
    if (same) return;
    ++out.differing;
    double by = std::abs(x - y);
    if (std::isnan(by)) by = INFINITY;  // a NaN, or infinities, on one side alone
    const double size = std::max(std::abs(x), std::abs(y));
    out.absolute = std::max(out.absolute, by);
    if (by > 0) out.relative = std::max(out.relative, std::isfinite(by) ? by / size : by);
  }

  TensorReader& a_;
  TensorReader& b_;
  ProgressLine& progress_;
  std::vector<std::byte> bytes_a_, bytes_b_;
  std::vector<double> doubles_a_, doubles_b_;
  std::vector<float> floats_;
};

// In the order of A, then what B alone has.
std::vector<std::pair<std::string, std::string>> names_of(const TensorReader& a,
                                                          const TensorReader& b, bool values_only) {
  std::vector<std::pair<std::string, std::string>> names;
  for (const TensorReader* const side : {&a, &b}) {
    for (const Tensor& tensor : side->manifest().tensors) {
      if (values_only && tensor.kind != "values") continue;
      if (side == &b && a.find(tensor.kind, tensor.name) != nullptr) continue;
      names.emplace_back(tensor.kind, tensor.name);
    }
  }
  return names;
}

uint64_t total_of(const TensorReader& reader, bool values_only) {
  uint64_t bytes = 0;
  for (const Tensor& tensor : reader.manifest().tensors) {
    if (!values_only || tensor.kind == "values") bytes += bytes_of(tensor);
  }
  return bytes;
}

Json json_of(const std::vector<Difference>& differences) {
  Json out = Json::array();
  for (const Difference& each : differences) {
    Json row = {{"name", each.name},
                {"kind", each.kind},
                {"verdict", each.verdict},
                {"elements", each.elements},
                {"differing", each.differing}};
    if (each.numbers) {
      row["max_absolute"] = each.absolute;  // null: infinite
      row["max_relative"] = each.relative;
    }
    out.push_back(std::move(row));
  }
  return out;
}

}  // namespace

int diff_checkpoints(const DiffOptions& options) {
  TensorReader a(open_checkpoint(options.a)), b(open_checkpoint(options.b));
  ProgressLine progress("compared",
                        total_of(a, options.values_only) + total_of(b, options.values_only));
  Comparer comparer(a, b, progress);
  std::vector<Difference> differences;
  uint64_t equal = 0;
  for (const auto& [kind, name] : names_of(a, b, options.values_only)) {
    Difference found = comparer.compare(kind, name);
    equal += found.equal() ? 1 : 0;
    if (options.all || options.json || !found.equal()) differences.push_back(std::move(found));
  }
  progress.clear();
  const bool different = std::any_of(differences.begin(), differences.end(),
                                     [](const Difference& each) { return !each.equal(); });
  if (options.json) {
    fmt::print("{}\n", Json{{"a", a.checkpoint().path},
                            {"b", b.checkpoint().path},
                            {"equal", !different},
                            {"tensors", json_of(differences)}}
                           .dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    return different ? kRuntimeError : kSuccess;
  }
  if (!differences.empty()) {
    std::vector<std::vector<std::string>> table = {
        {"tensor", "kind", "", "differing", "max |a-b|", "relative"}};
    for (const Difference& each : differences) {
      const bool counted = each.differing > 0;
      const bool numbers = counted && each.numbers;
      table.push_back({each.name, each.kind, each.verdict,
                       counted ? fmt::format("{} of {}", each.differing, each.elements) : "",
                       numbers ? fmt::format("{:.3g}", each.absolute) : "",
                       numbers ? fmt::format("{:.3g}", each.relative) : ""});
    }
    fmt::print("{}\n", in_columns(table, 3));
  }
  const uint64_t others = static_cast<uint64_t>(std::count_if(
      differences.begin(), differences.end(), [](const auto& each) { return !each.equal(); }));
  fmt::print("{} tensors are equal, {} are not\n", equal, others);
  return different ? kRuntimeError : kSuccess;
}

}  // namespace meron::tools

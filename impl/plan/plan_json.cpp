// SPDX-License-Identifier: Apache-2.0
#include "plan/plan_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>

#include "plan/json_text.h"
#include "plan/text.h"

namespace meron {
namespace {

constexpr uint32_t kMaxDepth = 8;

template <class T>
struct Word {
  std::string_view text;
  T value;
};

constexpr std::array kShardings = {Word<Sharding>{"none", Sharding::none},
                                   Word<Sharding>{"shard", Sharding::shard}};
constexpr std::array kTiers = {Word<Tier>{"host", Tier::host}};
constexpr std::array kCodecs = {Word<Codec>{"none", Codec::none}};

using MaybeDType = std::optional<DType>;
constexpr std::array kParamDTypes = {Word<MaybeDType>{"registered", std::nullopt}};
constexpr std::array kGradientDTypes = {
    Word<MaybeDType>{"param", std::nullopt}, Word<MaybeDType>{"f32", DType::f32},
    Word<MaybeDType>{"bf16", DType::bf16}, Word<MaybeDType>{"f16", DType::f16}};
constexpr std::array kOptimizerDTypes = {Word<MaybeDType>{"f32", DType::f32}};

// What the columns of a plan can mean in general. A word of these that a column does not take is
// sound but not offered, and the error says so instead of calling it a mistake.
constexpr std::array<std::string_view, 7> kFieldShardings = {
    "none", "shard", "replica", "replica x shard", "local", "node", "node x local"};
constexpr std::array<std::string_view, 3> kFieldTiers = {"device", "host", "nvme"};
constexpr std::array<std::string_view, 4> kFieldDTypes = {"f32", "bf16", "f16", "int8"};
constexpr std::array<std::string_view, 3> kFieldCodecs = {"none", "int8", "int4"};

// Reads the member `key` of `row`, one of `words`, into `out`; leaves it as it is where the key is
// not given. `column` is what the value is called.
template <class T>
Status read_word(JsonValue row, std::string_view key, std::string_view column,
                 std::span<const Word<T>> words, std::span<const std::string_view> field, T& out) {
  const auto value = row.find(key);
  if (!value) return Ok{};
  MERON_ASSIGN(const std::string_view text, value->string());
  std::vector<std::string_view> known;
  for (const Word<T>& word : words) {
    if (word.text == text) {
      out = word.value;
      return Ok{};
    }
    known.push_back(word.text);
  }
  const bool sound = std::find(field.begin(), field.end(), text) != field.end();
  if (sound) {
    return value->error(
        MERON_E_UNSUPPORTED,
        fmt::format("{} {} is not offered by this version", column, in_quotes(text)),
        suggestion({}, "values", known));
  }
  return value->error(MERON_E_PARSE, fmt::format("{} is not a {}", in_quotes(text), column),
                      suggestion(text, "values", known));
}

Status read_row(JsonValue plan, std::string_view kind, std::span<const Word<MaybeDType>> dtypes,
                bool has_codec, Row& row) {
  const auto value = plan.find(kind);
  if (!value) return Ok{};
  if (has_codec) {
    MERON_TRY(value->object({"sharding", "tier", "dtype", "codec"}));
  } else {
    MERON_TRY(value->object({"sharding", "tier", "dtype"}));
  }
  MERON_TRY(read_word<Sharding>(*value, "sharding", "sharding", kShardings, kFieldShardings,
                                row.sharding));
  MERON_TRY(read_word<Tier>(*value, "tier", "tier", kTiers, kFieldTiers, row.tier));
  MERON_TRY(read_word<MaybeDType>(*value, "dtype", "dtype", dtypes, kFieldDTypes, row.dtype));
  return read_word<Codec>(*value, "codec", "wire codec", kCodecs, kFieldCodecs, row.codec);
}

bool same_table(Plan a, const Plan& b) {
  a.name = b.name;
  return a == b;
}

std::string name_by_table(const Plan& plan) {
  for (const std::string_view name : kPresetNames) {
    if (const Result<Plan> known = preset(name); known && same_table(plan, *known)) {
      return std::string(name);
    }
  }
  return "custom";
}

// The value that a contradiction between rows is about: the first that the text itself gives.
JsonValue to_blame(JsonValue plan) {
  for (const std::string_view kind : {"optimizer", "gradient", "param"}) {
    const auto row = plan.find(kind);
    const auto sharding = row ? row->find("sharding") : std::nullopt;
    if (sharding) return *sharding;
  }
  return plan;
}

std::string_view dtype_word(std::span<const Word<MaybeDType>> words, MaybeDType dtype) {
  for (const auto& word : words) {
    if (word.value == dtype) return word.text;
  }
  return "?";
}

}  // namespace

Result<Plan> parse_plan(std::string_view json) {
  MERON_ASSIGN(const JsonText text,
               JsonText::parse(json, "plan", {.bytes = kMaxPlanText, .depth = kMaxDepth}));
  const JsonValue root = text.root();
  MERON_TRY(root.object({"preset", "name", "param", "gradient", "optimizer", "gradient_buckets"}));

  Plan plan;
  if (const auto value = root.find("preset")) {
    MERON_ASSIGN(const std::string_view name, value->string());
    Result<Plan> known = preset(name);
    if (!known)
      return value->error(MERON_E_PARSE, known.error().info().what, known.error().info().advice);
    plan = *std::move(known);
  }
  MERON_TRY(read_row(root, "param", kParamDTypes, true, plan.param));
  MERON_TRY(read_row(root, "gradient", kGradientDTypes, true, plan.gradient));
  MERON_TRY(read_row(root, "optimizer", kOptimizerDTypes, false, plan.optimizer));
  if (const auto value = root.find("gradient_buckets")) {
    MERON_ASSIGN(const uint64_t buckets, value->count(1, kMaxGradientBuckets));
    plan.gradient_buckets = static_cast<uint32_t>(buckets);
  }
  const auto name = root.find("name");
  if (name) {
    MERON_ASSIGN(const std::string_view given, name->string());
    plan.name = given;
  } else {
    plan.name = name_by_table(plan);
  }

  if (const Status name_valid = check_plan_name(plan.name); !name_valid) {
    const ErrorInfo& info = name_valid.error().info();
    return name->error(MERON_E_PARSE, info.what, info.advice);
  }
  if (const Status valid = validate(plan); !valid) {
    const ErrorInfo& info = valid.error().info();
    return to_blame(root).error(MERON_E_PARSE, info.what, info.advice);
  }
  return plan;
}

std::string to_json(const Plan& plan, int indent) {
  // Ordered: the rows read like the table.
  const auto row = [](const Row& from, std::span<const Word<MaybeDType>> dtypes) {
    return nlohmann::ordered_json{{"sharding", name_of(from.sharding)},
                                  {"tier", name_of(from.tier)},
                                  {"dtype", dtype_word(dtypes, from.dtype)}};
  };
  nlohmann::ordered_json param = row(plan.param, kParamDTypes);
  param["codec"] = name_of(plan.param.codec);
  nlohmann::ordered_json gradient = row(plan.gradient, kGradientDTypes);
  gradient["codec"] = name_of(plan.gradient.codec);
  const nlohmann::ordered_json out = {{"name", plan.name},
                                      {"param", std::move(param)},
                                      {"gradient", std::move(gradient)},
                                      {"optimizer", row(plan.optimizer, kOptimizerDTypes)},
                                      {"gradient_buckets", plan.gradient_buckets}};
  return out.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace meron

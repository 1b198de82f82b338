// SPDX-License-Identifier: Apache-2.0
#include "plan/plan_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "plan/json_text.h"
#include "plan/predict.h"
#include "plan/state_layout.h"
#include "plan/text.h"

namespace meron {
namespace {

constexpr uint32_t kMaxPlanDepth = 8;

template <class T>
struct Word {
  std::string_view text;
  T value;
};

constexpr std::array kShardings = {Word<Sharding>{"none", Sharding::none},
                                   Word<Sharding>{"shard", Sharding::shard},
                                   Word<Sharding>{"replica x shard", Sharding::world}};
constexpr std::array kTiers = {Word<Tier>{"host", Tier::host}, Word<Tier>{"nvme", Tier::nvme},
                               Word<Tier>{"device", Tier::device}};
constexpr std::array kCodecs = {
    Word<CodecKind>{"none", CodecKind::none}, Word<CodecKind>{"bf16", CodecKind::bf16},
    Word<CodecKind>{"int8", CodecKind::int8}, Word<CodecKind>{"int4", CodecKind::int4}};
constexpr std::array kRoundings = {Word<bool>{"nearest", false}, Word<bool>{"stochastic", true}};
constexpr std::array kFrozen = {Word<bool>{"registered", false}, Word<bool>{"int8", true}};
constexpr std::array kSecondCopies = {Word<bool>{"none", false}, Word<bool>{"shard", true}};

using MaybeDType = std::optional<DType>;
constexpr std::array kParamDTypes = {Word<MaybeDType>{"registered", std::nullopt}};
constexpr std::array kGradientDTypes = {
    Word<MaybeDType>{"param", std::nullopt}, Word<MaybeDType>{"f32", DType::f32},
    Word<MaybeDType>{"bf16", DType::bf16}, Word<MaybeDType>{"f16", DType::f16}};
// Words of PyTorch and its users, and ours.
constexpr std::array<std::array<std::string_view, 2>, 7> kOtherDTypes = {{{"float32", "f32"},
                                                                          {"fp32", "f32"},
                                                                          {"float", "f32"},
                                                                          {"bfloat16", "bf16"},
                                                                          {"float16", "f16"},
                                                                          {"fp16", "f16"},
                                                                          {"half", "f16"}}};
constexpr std::array kStateDTypes = {Word<StateDType>{"f32", StateDType::f32},
                                     Word<StateDType>{"bf16", StateDType::bf16},
                                     Word<StateDType>{"int8", StateDType::int8}};

// What the columns of a plan can mean in general. A word of these that a column does not take is
// sound but not offered, and the error says so instead of calling it a mistake.
constexpr std::array<std::string_view, 7> kFieldShardings = {
    "none", "shard", "replica", "replica x shard", "local", "node", "node x local"};
constexpr std::array<std::string_view, 3> kFieldTiers = {"device", "host", "nvme"};
constexpr std::array<std::string_view, 4> kFieldDTypes = {"f32", "bf16", "f16", "int8"};
constexpr std::array<std::string_view, 5> kFieldCodecs = {"none", "bf16", "int8", "int4", "fp8"};

// Reads the member `key` of `row`, one of `words`, into `out`; leaves it as it is where the key is
// not given. `column` is what the value is called.
template <class T>
Status read_word(JsonValue row, std::string_view key, std::string_view column,
                 std::span<const Word<T>> words, std::span<const std::string_view> field, T& out) {
  const auto value = row.find(key);
  if (!value) return Ok{};
  MERON_ASSIGN(std::string_view text, value->string());
  if (key == "dtype") {
    for (const auto& [other, own] : kOtherDTypes) {
      if (text == other) text = own;
    }
  }
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

// What the keys of a codec given as an object are, beside its kind.
Status read_feedback(JsonValue value, Codec& codec) {
  if (const auto flag = value.boolean(); flag.ok()) {
    codec.feedback = *flag;
    return Ok{};
  }
  MERON_TRY(value.object({"beta", "reset"}));
  codec.feedback = true;
  if (const auto beta = value.find("beta")) {
    MERON_ASSIGN(codec.feedback_beta, beta->number());
  }
  if (const auto reset = value.find("reset")) {
    MERON_ASSIGN(const uint64_t count, reset->count(0, kMaxFeedbackReset));
    codec.feedback_reset = static_cast<uint32_t>(count);
  }
  return Ok{};
}

// "int8", or { "kind": "int8", "block": 256, ... }.
Status read_codec(JsonValue row, Codec& codec) {
  const auto value = row.find("codec");
  if (!value) return Ok{};
  if (value->string().ok()) {
    codec = {};
    return read_word<CodecKind>(row, "codec", "wire codec", kCodecs, kFieldCodecs, codec.kind);
  }
  MERON_TRY(value->object(
      {"kind", "block", "rounding", "hadamard", "feedback", "difference", "error_limit"}));
  codec = {};
  MERON_TRY(read_word<CodecKind>(*value, "kind", "wire codec", kCodecs, kFieldCodecs, codec.kind));
  if (const auto block = value->find("block")) {
    MERON_ASSIGN(const uint64_t elements, block->count(kLeastCodecBlock, kMostCodecBlock));
    codec.block = static_cast<uint32_t>(elements);
  }
  MERON_TRY(read_word<bool>(*value, "rounding", "rounding", kRoundings, {}, codec.stochastic));
  if (const auto hadamard = value->find("hadamard")) {
    MERON_ASSIGN(codec.hadamard, hadamard->boolean());
  }
  if (const auto feedback = value->find("feedback")) MERON_TRY(read_feedback(*feedback, codec));
  if (const auto difference = value->find("difference")) {
    MERON_ASSIGN(codec.difference, difference->boolean());
  }
  if (const auto limit = value->find("error_limit")) {
    MERON_ASSIGN(codec.error_limit, limit->number());
  }
  return Ok{};
}

Status read_sharding(JsonValue row, Sharding& sharding) {
  return read_word<Sharding>(row, "sharding", "sharding", kShardings, kFieldShardings, sharding);
}

Status read_row(JsonValue value, std::span<const Word<MaybeDType>> dtypes, Row& row) {
  MERON_TRY(read_sharding(value, row.sharding));
  MERON_TRY(read_word<Tier>(value, "tier", "tier", kTiers, kFieldTiers, row.tier));
  return read_word<MaybeDType>(value, "dtype", "dtype", dtypes, kFieldDTypes, row.dtype);
}

Status read_number(JsonValue row, std::string_view key, uint64_t min, uint64_t max, uint32_t& out) {
  const auto value = row.find(key);
  if (!value) return Ok{};
  MERON_ASSIGN(const uint64_t number, value->count(min, max));
  out = static_cast<uint32_t>(number);
  return Ok{};
}

// A fraction that resolve_fraction() replaces.
constexpr double kAutomatic = std::numeric_limits<double>::quiet_NaN();
constexpr uint64_t kMostRate = uint64_t{1} << 50;

Status read_optimizer(JsonValue value, Plan& plan) {
  MERON_TRY(value.object({"sharding", "tier", "dtype", "fraction", "sub_group", "buffers"}));
  MERON_TRY(read_sharding(value, plan.optimizer.sharding));
  MERON_TRY(read_word<Tier>(value, "tier", "tier", kTiers, kFieldTiers, plan.optimizer.tier));
  MERON_TRY(
      read_word<StateDType>(value, "dtype", "dtype", kStateDTypes, kFieldDTypes, plan.state_dtype));
  if (const auto fraction = value.find("fraction")) {
    const auto word = fraction->string();
    if (word.ok() && *word == "auto") {
      plan.nvme_fraction = kAutomatic;
    } else {
      MERON_ASSIGN(plan.nvme_fraction, fraction->number());
    }
  }
  if (const auto sub_group = value.find("sub_group")) {
    MERON_ASSIGN(const uint64_t elements, sub_group->count(1, kMostSubGroup));
    plan.sub_group = round_up(elements, kLeastSubGroup);
  }
  return read_number(value, "buffers", kLeastStateBuffers, kMostStateBuffers, plan.state_buffers);
}

// "auto": as much of the states as does not make a step longer. The drive moves each of its
// elements both ways while the host updates all of them. By the rates of the plan, so that all
// ranks choose alike.
Status resolve_fraction(JsonValue root, Plan& plan) {
  if (!std::isnan(plan.nvme_fraction)) return Ok{};
  const NvmeRates& rates = plan.nvme.rates;
  if (!rates.known()) {
    const auto value = root.find("optimizer")->find("fraction");
    return value->error(
        MERON_E_PARSE, "fraction is \"auto\", and the plan has no rates of nvme",
        "run `meron io-bench DIR --save FILE`, and give what it writes as \"nvme\"");
  }
  constexpr double kSteps = 1000.0;
  const StateShape shape{.dtype = plan.state_dtype, .master = true};
  const double bytes = static_cast<double>(shape.bytes(kRecord)) / kRecord;
  const double fraction =
      static_cast<double>(rates.both) / (static_cast<double>(rates.update) * bytes);
  plan.nvme_fraction = std::clamp(std::floor(fraction * kSteps) / kSteps, 1.0 / kSteps, 1.0);
  return Ok{};
}

Status read_rates(JsonValue nvme, NvmeRates& rates) {
  const auto value = nvme.find("rates");
  if (!value) return Ok{};
  MERON_TRY(value->object({"read", "write", "both", "update"}));
  for (const auto& [key, rate] : {std::pair{"read", &rates.read},
                                  {"write", &rates.write},
                                  {"both", &rates.both},
                                  {"update", &rates.update}}) {
    MERON_ASSIGN(const JsonValue number, value->require(key));
    MERON_ASSIGN(*rate, number.count(1, kMostRate));
  }
  return Ok{};
}

// { "path": "/local", "block": 1048576, "depth": 32, "threads": 1, "rates": { ... } }
Status read_nvme(JsonValue root, Nvme& nvme) {
  const auto value = root.find("nvme");
  if (!value) return Ok{};
  MERON_TRY(value->object({"path", "block", "depth", "threads", "rates"}));
  MERON_TRY(read_rates(*value, nvme.rates));
  if (const auto path = value->find("path")) {
    MERON_ASSIGN(const std::string_view text, path->string());
    nvme.path = text;
  }
  MERON_TRY(read_number(*value, "block", Nvme::kLeastBlock, Nvme::kMostBlock, nvme.block));
  MERON_TRY(read_number(*value, "depth", 1, Nvme::kMostDepth, nvme.depth));
  return read_number(*value, "threads", 1, Nvme::kMostThreads, nvme.threads);
}

Status read_rows(JsonValue root, Plan& plan) {
  if (const auto param = root.find("param")) {
    MERON_TRY(param->object(
        {"sharding", "tier", "dtype", "frozen", "second_copy", "codec", "resident", "buffers"}));
    MERON_TRY(read_row(*param, kParamDTypes, plan.param));
    MERON_TRY(read_codec(*param, plan.param.codec));
    MERON_TRY(read_word<bool>(*param, "frozen", "dtype of frozen parameters", kFrozen, kFieldDTypes,
                              plan.frozen_int8));
    MERON_TRY(read_word<bool>(*param, "second_copy", "second copy", kSecondCopies, kFieldShardings,
                              plan.second_copy));
    if (const auto resident = param->find("resident")) {
      MERON_ASSIGN(plan.resident, resident->count(0, kMostSubGroup));
    }
    MERON_TRY(
        read_number(*param, "buffers", kLeastParamBuffers, kMostParamBuffers, plan.param_buffers));
  }
  if (const auto gradient = root.find("gradient")) {
    MERON_TRY(gradient->object({"sharding", "tier", "dtype", "codec"}));
    MERON_TRY(read_row(*gradient, kGradientDTypes, plan.gradient));
    MERON_TRY(read_codec(*gradient, plan.gradient.codec));
  }
  if (const auto optimizer = root.find("optimizer")) {
    MERON_TRY(read_optimizer(*optimizer, plan));
  }
  MERON_TRY(read_nvme(root, plan.nvme));
  return resolve_fraction(root, plan);
}

// { "shard": 4 } or { "shard": "node" } or { "shard": "all" }.
Status read_mesh(JsonValue root, Mesh& mesh) {
  const auto value = root.find("mesh");
  if (!value) return Ok{};
  MERON_TRY(value->object({"shard"}));
  MERON_ASSIGN(const JsonValue shard, value->require("shard"));
  if (const auto word = shard.string(); word.ok()) {
    if (*word == "node") mesh.shard = Mesh::kNode;
    if (*word == "all") mesh.shard = Mesh::kAll;
    if (*word == "node" || *word == "all") return Ok{};
    return shard.error(MERON_E_PARSE, fmt::format("{} is no size of an axis", in_quotes(*word)),
                       R"(give a number of ranks, "node" or "all")");
  }
  MERON_ASSIGN(const uint64_t ranks, shard.count(1, kMaxPlanRanks));
  mesh.shard = static_cast<uint32_t>(ranks);
  return Ok{};
}

bool same_table(Plan a, const Plan& b) {
  a.name = b.name;
  return a == b;
}

std::string name_by_table(const Plan& plan) {
  for (const std::string_view name : kPresetNames) {
    std::string call(name);
    if (plan.mesh.shard != Mesh::kAll && plan.mesh.shard != Mesh::kNode) {
      call += fmt::format("({})", plan.mesh.shard);
    }
    if (const Result<Plan> known = preset(call); known && same_table(plan, *known)) return call;
  }
  return "custom";
}

// The value that a contradiction between rows is about: the first that the text itself gives.
JsonValue to_blame(JsonValue plan) {
  for (const std::string_view kind : {"optimizer", "gradient", "param"}) {
    const auto row = plan.find(kind);
    for (const std::string_view key : {"codec", "second_copy", "fraction", "sub_group", "resident",
                                       "buffers", "tier", "sharding"}) {
      const auto value = row ? row->find(key) : std::nullopt;
      if (value) return *value;
    }
  }
  return plan.find("nvme").value_or(plan.find("mesh").value_or(plan));
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
               JsonText::parse(json, "plan", {.bytes = kMaxPlanText, .depth = kMaxPlanDepth}));
  const JsonValue root = text.root();
  MERON_TRY(root.object(
      {"preset", "name", "mesh", "param", "gradient", "optimizer", "gradient_buckets", "nvme"}));

  Plan plan;
  if (const auto value = root.find("preset")) {
    MERON_ASSIGN(const std::string_view name, value->string());
    Result<Plan> known = preset(name);
    if (!known)
      return value->error(MERON_E_PARSE, known.error().info().what, known.error().info().advice);
    plan = *std::move(known);
  }
  MERON_TRY(read_mesh(root, plan.mesh));
  MERON_TRY(read_rows(root, plan));
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

namespace {

using Json = nlohmann::ordered_json;

// Ordered: the rows read like the table.
Json row_json(const Row& row, std::span<const Word<MaybeDType>> dtypes) {
  return {{"sharding", name_of(row.sharding)},
          {"tier", name_of(row.tier)},
          {"dtype", dtype_word(dtypes, row.dtype)}};
}

Json codec_json(const Codec& codec) {
  if (codec == Codec{.kind = codec.kind}) return name_of(codec.kind);
  Json out = {{"kind", name_of(codec.kind)},
              {"block", codec.block},
              {"rounding", codec.stochastic ? "stochastic" : "nearest"},
              {"hadamard", codec.hadamard}};
  out["feedback"] = false;
  if (codec.feedback) {
    out["feedback"] = {{"beta", codec.feedback_beta}, {"reset", codec.feedback_reset}};
  }
  out["difference"] = codec.difference;
  out["error_limit"] = codec.error_limit;
  return out;
}

Json mesh_json(const Mesh& mesh) {
  if (mesh.shard == Mesh::kAll) return {{"shard", "all"}};
  if (mesh.shard == Mesh::kNode) return {{"shard", "node"}};
  return {{"shard", mesh.shard}};
}

}  // namespace

std::string to_json(const Plan& plan, int indent) {
  Json param = row_json(plan.param, kParamDTypes);
  param["frozen"] = plan.frozen_int8 ? "int8" : "registered";
  param["second_copy"] = plan.second_copy ? "shard" : "none";
  param["codec"] = codec_json(plan.param.codec);
  if (plan.param.tier == Tier::nvme) {
    param["resident"] = plan.resident;
    param["buffers"] = plan.param_buffers;
  }
  Json gradient = row_json(plan.gradient, kGradientDTypes);
  gradient["codec"] = codec_json(plan.gradient.codec);
  Json optimizer = {{"sharding", name_of(plan.optimizer.sharding)},
                    {"tier", name_of(plan.optimizer.tier)},
                    {"dtype", name_of(plan.state_dtype)}};
  if (plan.optimizer.tier == Tier::nvme) {
    optimizer["fraction"] = plan.nvme_fraction;
    optimizer["sub_group"] = plan.sub_group;
    optimizer["buffers"] = plan.state_buffers;
  }
  Json out = {{"name", plan.name},
              {"mesh", mesh_json(plan.mesh)},
              {"param", std::move(param)},
              {"gradient", std::move(gradient)},
              {"optimizer", std::move(optimizer)},
              {"gradient_buckets", plan.gradient_buckets}};
  if (!plan.nvme.path.empty()) {
    out["nvme"] = {{"path", plan.nvme.path},
                   {"block", plan.nvme.block},
                   {"depth", plan.nvme.depth},
                   {"threads", plan.nvme.threads}};
    const NvmeRates& rates = plan.nvme.rates;
    if (rates.known()) {
      out["nvme"]["rates"] = {{"read", rates.read},
                              {"write", rates.write},
                              {"both", rates.both},
                              {"update", rates.update}};
    }
  }
  return out.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string plan_difference(std::string_view a, std::string_view b) {
  const auto flat = [](std::string_view text) {
    const Json parsed = Json::parse(text, nullptr, false);
    return parsed.is_object() ? parsed.flatten() : Json::object();
  };
  const Json first = flat(a), second = flat(b);
  const auto shown = [](const Json& plan, const std::string& key) {
    const auto value = plan.find(key);
    return value == plan.end() ? std::string("nothing") : value->dump();
  };
  std::vector<std::string> keys;
  for (const Json* plan : {&first, &second}) {
    for (const auto& [key, value] : plan->items()) {
      if (shown(first, key) == shown(second, key)) continue;
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
    }
  }
  std::string out;
  for (const std::string& key : keys) {
    std::string dotted = key.substr(1);
    std::replace(dotted.begin(), dotted.end(), '/', '.');
    out += fmt::format("{}{}: {} and {}", out.empty() ? "" : "; ", dotted, shown(first, key),
                       shown(second, key));
  }
  return out;
}

}  // namespace meron

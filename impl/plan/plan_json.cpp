// SPDX-License-Identifier: Apache-2.0
#include "plan/plan_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "plan/json_text.h"
#include "plan/plan_words.h"
#include "plan/predict.h"
#include "plan/quantity.h"
#include "plan/state_layout.h"
#include "plan/text.h"

namespace meron {
namespace {

constexpr uint32_t kMaxPlanDepth = 8;

// Words of PyTorch and its users, and those of a plan.
constexpr std::array<std::array<std::string_view, 2>, 7> kOtherDTypes = {{{"float32", "f32"},
                                                                          {"fp32", "f32"},
                                                                          {"float", "f32"},
                                                                          {"bfloat16", "bf16"},
                                                                          {"float16", "f16"},
                                                                          {"fp16", "f16"},
                                                                          {"half", "f16"}}};
// Values that a column could have in general. One that this version does not take is reported as
// not offered, instead of as a mistake.
constexpr std::array<std::string_view, 7> kFieldShardings = {
    "none", "shard", "replica", "replica x shard", "local", "node", "node x local"};
constexpr std::array<std::string_view, 3> kFieldTiers = {"device", "host", "nvme"};
constexpr std::array<std::string_view, 4> kFieldDTypes = {"f32", "bf16", "f16", "int8"};
constexpr std::array<std::string_view, 5> kFieldCodecs = {"none", "bf16", "int8", "int4", "fp8"};

// Reads the member `key` of `entry`, one of `words`, into `out`; leaves it as it is where the key
// is not given. `column` is what the value is called.
template <class T>
Status read_word(JsonValue entry, std::string_view key, std::string_view column,
                 std::span<const Word<T>> words, std::span<const std::string_view> field, T& out) {
  const auto value = entry.find(key);
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

// true, or { "beta": 0.8, "reset": 1024 }.
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
Status read_codec(JsonValue entry, Codec& codec) {
  const auto value = entry.find("codec");
  if (!value) return Ok{};
  if (value->string().ok()) {
    codec = {};
    return read_word<CodecKind>(entry, "codec", "wire codec", kCodecs, kFieldCodecs, codec.kind);
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

Status read_row(JsonValue value, Row& row) {
  MERON_TRY(read_word<Sharding>(value, "sharding", "sharding", kShardings, kFieldShardings,
                                row.sharding));
  return read_word<Tier>(value, "tier", "tier", kTiers, kFieldTiers, row.tier);
}

Status read_number(JsonValue entry, std::string_view key, uint64_t min, uint64_t max,
                   uint32_t& out) {
  const auto value = entry.find(key);
  if (!value) return Ok{};
  MERON_ASSIGN(const uint64_t number, value->count(min, max));
  out = static_cast<uint32_t>(number);
  return Ok{};
}

// A number of bytes, or a text: "4 GiB".
Status read_bytes(JsonValue entry, std::string_view key, uint64_t& out) {
  const auto value = entry.find(key);
  if (!value) return Ok{};
  const auto text = value->string();
  if (!text.ok()) {
    MERON_ASSIGN(out, value->count(0, kMostGatherWindow));
    return Ok{};
  }
  const auto bytes = parse_quantity(*text, QuantityKind::bytes);
  if (!bytes.ok()) {
    const ErrorInfo& info = bytes.error().info();
    return value->error(MERON_E_PARSE, info.what, info.advice);
  }
  out = static_cast<uint64_t>(*bytes);
  return Ok{};
}

// A fraction that resolve_fraction() replaces.
constexpr double kAutomatic = std::numeric_limits<double>::quiet_NaN();
constexpr uint64_t kMostRate = uint64_t{1} << 50;

Status read_optimizer(JsonValue value, OptimizerRow& row) {
  MERON_TRY(value.object({"sharding", "tier", "dtype", "fraction", "sub_group", "buffers"}));
  MERON_TRY(read_row(value, row));
  MERON_TRY(read_word<StateDType>(value, "dtype", "dtype", kStateDTypes, kFieldDTypes, row.dtype));
  if (const auto fraction = value.find("fraction")) {
    const auto word = fraction->string();
    if (word.ok() && *word == "auto") {
      row.fraction = kAutomatic;
    } else {
      MERON_ASSIGN(row.fraction, fraction->number());
    }
  }
  if (const auto sub_group = value.find("sub_group")) {
    MERON_ASSIGN(const uint64_t elements, sub_group->count(1, kMostSubGroup));
    row.sub_group = round_up(elements, kLeastSubGroup);
  }
  return read_number(value, "buffers", kLeastStateBuffers, kMostStateBuffers, row.buffers);
}

// "auto": the largest fraction that does not make a step longer. The drive reads and writes its
// elements while the host updates all of them. By the rates of the plan, so that all ranks choose
// alike.
Status resolve_fraction(JsonValue root, Plan& plan) {
  if (!std::isnan(plan.optimizer.fraction)) return Ok{};
  const NvmeRates& rates = plan.nvme.rates;
  if (!rates.known()) {
    const auto value = root.find("optimizer")->find("fraction");
    return value->error(
        MERON_E_PARSE, "fraction is \"auto\", and the plan has no rates of nvme",
        "run `meron io-bench DIR --save FILE`, and give what it writes as \"nvme\"");
  }
  constexpr double kSteps = 1000.0;
  const StateShape shape{.dtype = plan.optimizer.dtype, .master = true};
  const double bytes = static_cast<double>(shape.bytes(kRecord)) / kRecord;
  const double fraction =
      static_cast<double>(rates.both) / (static_cast<double>(rates.update) * bytes);
  plan.optimizer.fraction = std::clamp(std::floor(fraction * kSteps) / kSteps, 1.0 / kSteps, 1.0);
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

// Plans and checkpoints written before version 0.2 have the former key.
Status read_secondary_partition(JsonValue entry, bool& out) {
  constexpr std::string_view kKey = "secondary_partition", kFormerKey = "second_copy";
  const auto former = entry.find(kFormerKey);
  if (former && entry.find(kKey)) {
    return former->key_error("is the former name of secondary_partition, which is given too",
                             "leave second_copy out");
  }
  return read_word<bool>(entry, former ? kFormerKey : kKey, "secondary partition",
                         kSecondaryPartitions, kFieldShardings, out);
}

Status read_param(JsonValue value, ParamRow& row) {
  MERON_TRY(
      value.object({"sharding", "tier", "dtype", "frozen", "secondary_partition", "second_copy",
                    "codec", "resident", "buffers", "gather_window", "register_values"}));
  MERON_TRY(read_row(value, row));
  MaybeDType registered;
  MERON_TRY(read_word<MaybeDType>(value, "dtype", "dtype", kParamDTypes, kFieldDTypes, registered));
  MERON_TRY(read_codec(value, row.codec));
  MERON_TRY(read_word<bool>(value, "frozen", "dtype of frozen parameters", kFrozen, kFieldDTypes,
                            row.frozen_int8));
  MERON_TRY(read_secondary_partition(value, row.secondary_partition));
  if (const auto resident = value.find("resident")) {
    MERON_ASSIGN(row.resident, resident->count(0, kMostSubGroup));
  }
  MERON_TRY(read_number(value, "buffers", kLeastParamBuffers, kMostParamBuffers, row.buffers));
  MERON_TRY(read_bytes(value, "gather_window", row.gather_window));
  if (const auto registers = value.find("register_values")) {
    MERON_ASSIGN(row.register_values, registers->boolean());
  }
  return Ok{};
}

Status read_entries(JsonValue root, Plan& plan) {
  if (const auto param = root.find("param")) MERON_TRY(read_param(*param, plan.param));
  if (const auto gradient = root.find("gradient")) {
    MERON_TRY(gradient->object({"sharding", "tier", "dtype", "codec"}));
    MERON_TRY(read_row(*gradient, plan.gradient));
    GradientDType in{plan.gradient.dtype, plan.gradient.rounds};
    MERON_TRY(
        read_word<GradientDType>(*gradient, "dtype", "dtype", kGradientDTypes, kFieldDTypes, in));
    plan.gradient.dtype = in.dtype;
    plan.gradient.rounds = in.rounds;
    MERON_TRY(read_codec(*gradient, plan.gradient.codec));
  }
  if (const auto optimizer = root.find("optimizer")) {
    MERON_TRY(read_optimizer(*optimizer, plan.optimizer));
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
    return shard.error(MERON_E_PARSE,
                       fmt::format("{} is not the size of an axis", in_quotes(*word)),
                       R"(give a number of ranks, "node" or "all")");
  }
  MERON_ASSIGN(const uint64_t ranks, shard.count(1, kMaxPlanRanks));
  mesh.shard = static_cast<uint32_t>(ranks);
  return Ok{};
}

bool same_table(Plan a, const Plan& b) {
  a.name = b.name;
  a.param.gather_window = b.param.gather_window;
  a.param.register_values = b.param.register_values;
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

// The value that a contradiction between entries is about: the first that the text gives.
JsonValue to_blame(JsonValue plan) {
  for (const std::string_view kind : {"optimizer", "gradient", "param"}) {
    const auto entry = plan.find(kind);
    for (const std::string_view key :
         {"codec", "secondary_partition", "second_copy", "fraction", "sub_group", "resident",
          "buffers", "gather_window", "register_values", "tier", "sharding"}) {
      const auto value = entry ? entry->find(key) : std::nullopt;
      if (value) return *value;
    }
  }
  return plan.find("nvme").value_or(plan.find("mesh").value_or(plan));
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
  MERON_TRY(read_entries(root, plan));
  // Micro-batches of sharded gradients are added to f32 sums: both words mean the same.
  if (is_sharded(plan.gradient)) plan.gradient.rounds = false;
  if (const auto value = root.find("gradient_buckets")) {
    MERON_ASSIGN(const uint64_t buckets, value->count(1, kMaxGradientBuckets));
    plan.gradient.buckets = static_cast<uint32_t>(buckets);
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

}  // namespace meron

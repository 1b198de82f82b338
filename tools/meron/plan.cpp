// SPDX-License-Identifier: Apache-2.0
// `meron plan`: what a plan costs in memory and traffic, before anything runs.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/human_bytes.h"
#include "meron/plan.h"
#include "tools/meron/commands.h"
#include "tools/meron/engine_error.h"
#include "tools/meron/failure.h"
#include "tools/meron/model_source.h"
#include "tools/meron/picture.h"
#include "tools/meron/plan_fit.h"
#include "tools/meron/plan_help.h"
#include "tools/meron/planning/step_time.h"
#include "tools/meron/text.h"

namespace meron::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array kPresets = {"zero0", "zero1", "zero2", "zero3"};
// With the size of a node as their argument.
constexpr std::array kPresetsOfNodes = {"mics", "hpz", "zeropp"};

constexpr const char* kNotCounted =
    "Activations, and what the trainer itself takes, are not counted.\n";

struct PlanOptions {
  std::string parameters;
  int64_t layers = 0;
  std::string dtype = "bf16";
  std::string safetensors;
  std::string model;
  std::string plan = "zero3";
  int64_t ranks = 2;
  int64_t ranks_per_node = 0;
  int64_t micro_batches = 1;
  int64_t gathers = 2;
  std::string cluster;
  int64_t tokens = 0;
  double compute_seconds = 0;
  std::string plot;
  std::string nvme;
  std::string memory;
  bool compare = false;
  bool json = false;
};

// A plan on the drive that io-bench has measured: the states, where the plan puts nothing there.
std::string with_nvme(const std::string& plan, const std::string& file) {
  const Json saved =
      Json::parse(read_text(file, "what `meron io-bench --save` wrote"), nullptr, false);
  const Json nvme = saved.is_object() ? saved.value("nvme", Json()) : Json();
  if (!nvme.is_object() || !nvme.contains("rates")) {
    throw Failure(
        fmt::format("{} has no rates of a drive: write it by `meron io-bench DIR --save {}`", file,
                    file),
        kUsageError);
  }
  Json table = Json::parse(plan, nullptr, false);
  if (!table.is_object()) return plan;  // the library says what is wrong with it
  const auto on_nvme = [&](const char* row) {
    const Json::json_pointer tier(fmt::format("/{}/tier", row));
    return table.contains(tier) && table[tier] == "nvme";
  };
  if (!on_nvme("optimizer") && !on_nvme("param")) table["optimizer"]["tier"] = "nvme";
  table["nvme"] = nvme;
  return table.dump();
}

class Plan {
 public:
  // `given`: the name of a preset, or a file. `nvme`: a file of `meron io-bench --save`, or
  // nothing.
  explicit Plan(const std::string& given, const std::string& nvme = {}) {
    const bool exists = given.ends_with(".json") || access(given.c_str(), F_OK) == 0;
    if (!exists && nvme.empty() && given.find('/') != std::string::npos &&
        meron_plan_preset(&plan_, given.c_str(), nullptr) == MERON_OK) {
      return;  // there are plans with a / in their names
    }
    const bool is_file = exists || given.find('/') != std::string::npos;
    LibraryError error;
    if (!nvme.empty()) {
      const std::string text = with_nvme(
          is_file ? read_text(given, "a plan in JSON") : Json{{"preset", given}}.dump(), nvme);
      error.check(meron_plan_parse(&plan_, text.data(), text.size(), error.out()), given);
    } else if (is_file) {
      const std::string text = read_text(given, "a plan in JSON");
      error.check(meron_plan_parse(&plan_, text.data(), text.size(), error.out()), given);
    } else {
      error.check(meron_plan_preset(&plan_, given.c_str(), error.out()));
    }
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  ~Plan() { meron_plan_release(plan_, nullptr); }

  std::string predict(const std::string& model, const meron_workload& workload,
                      bool as_table) const {
    char* text = nullptr;
    LibraryError error;
    error.check(meron_plan_predict(&text, plan_, model.data(), model.size(), &workload,
                                   as_table ? 1 : 0, error.out()));
    const std::unique_ptr<char, void (*)(char*)> owner(text, meron_string_free);
    return text;
  }

 private:
  meron_plan plan_ = {0};
};

std::string read_model(const PlanOptions& options) {
  const int sources = (options.parameters.empty() ? 0 : 1) + (options.safetensors.empty() ? 0 : 1) +
                      (options.model.empty() ? 0 : 1);
  if (sources != 1) {
    throw Failure(sources == 0
                      ? "which model? Give --parameters and --layers, --safetensors or --model"
                      : "give one of --parameters, --safetensors and --model, not several",
                  kUsageError);
  }
  if (!options.safetensors.empty()) return model_of_safetensors(options.safetensors);
  if (!options.model.empty()) return model_of_json(options.model);
  if (options.layers == 0) throw Failure("--parameters needs --layers too", kUsageError);
  return model_of_size(parse_count(options.parameters), options.layers, options.dtype);
}

uint32_t at_least_one(const char* option, int64_t value) {
  constexpr int64_t kMost = std::numeric_limits<uint32_t>::max();
  if (value < 1 || value > kMost) {
    throw Failure(fmt::format("{} {} is not possible: give a whole number from 1", option, value),
                  kUsageError);
  }
  return static_cast<uint32_t>(value);
}

meron_workload read_workload(const PlanOptions& options) {
  meron_workload workload = MERON_WORKLOAD_INIT;
  workload.ranks = at_least_one("-n", options.ranks);
  if (options.ranks_per_node != 0) {
    workload.ranks_per_node = at_least_one("--ranks-per-node", options.ranks_per_node);
  }
  workload.micro_batches = at_least_one("--micro-batches", options.micro_batches);
  workload.gathers_per_micro_batch = at_least_one("--gathers", options.gathers);
  return workload;
}

using Quantities = std::vector<const char*>;  // added up; one that a plan has not counts as 0

// The rank that needs the most memory, and the one to which the most is moved, stand for all.
std::string largest(const Json& prediction, const Quantities& quantities) {
  uint64_t most = 0;
  for (const Json& rank : prediction["ranks"]) {
    uint64_t bytes = 0;
    for (const char* quantity : quantities) {
      bytes += rank.value(Json::json_pointer(quantity), uint64_t{0});
    }
    most = std::max(most, bytes);
  }
  return human_bytes(most);
}

struct Comparison {
  std::vector<std::string> plans;
  std::vector<Json> predictions;  // of each plan
};

std::string table_of(const Comparison& comparison, bool several_nodes) {
  struct Column {
    const char* head;
    Quantities quantities;
  };
  std::vector<Column> columns = {
      {"param", {"/memory/host/param/bytes", "/memory/host/secondary_partition/bytes"}},
      {"gradient", {"/memory/host/gradient/bytes"}},
      {"optimizer", {"/memory/host/optimizer/bytes"}},
      {"total", {"/memory/host/total/bytes"}},
      {"gather in place", {"/links/shm/gather_mapped/bytes"}},
      {"gather by copy", {"/links/shm/gather_copied/bytes"}},
      {"reduce", {"/links/shm/reduce/bytes"}},
  };
  if (several_nodes) {
    columns.push_back({"from other nodes",
                       {"/links/between_nodes/gather/bytes", "/links/between_nodes/reduce/bytes"}});
  }
  std::vector<std::vector<std::string>> rows = {{"plan"}};
  for (const Column& column : columns) rows[0].push_back(column.head);
  for (size_t i = 0; i < comparison.plans.size(); ++i) {
    rows.push_back({comparison.plans[i]});
    for (const Column& column : columns) {
      rows.back().push_back(largest(comparison.predictions[i], column.quantities));
    }
  }
  const Json& model = comparison.predictions[0]["model"];
  const Json& workload = comparison.predictions[0]["workload"];
  return fmt::format(
      "ranks {}, units {}, elements {}, micro-batches per step {}, gathers per micro-batch {}\n\n"
      "memory on the fullest rank; bytes that the busiest rank takes from its peers per step\n{}",
      workload["ranks"].dump(), model["units"].dump(), model["elements"].dump(),
      workload["micro_batches"].dump(), workload["gathers_per_micro_batch"].dump(),
      in_columns(rows, 1));
}

Comparison compare(const std::string& model, const meron_workload& workload) {
  Comparison out;
  out.plans.assign(kPresets.begin(), kPresets.end());
  if (workload.ranks_per_node != 0) {
    for (const char* name : kPresetsOfNodes) {
      out.plans.push_back(fmt::format("{}({})", name, workload.ranks_per_node));
    }
  }
  for (const std::string& name : out.plans) {
    out.predictions.push_back(Json::parse(Plan(name).predict(model, workload, false)));
  }
  return out;
}

std::string rank_cluster(const PlanOptions& options, const std::string& model,
                         const std::string& cluster, bool as_table) {
  const meron_workload workload = read_workload(options);
  const planning::ClusterLoad load = {
      .micro_batches = workload.micro_batches,
      .gathers_per_micro_batch = workload.gathers_per_micro_batch,
      .tokens = options.tokens == 0 ? 0 : at_least_one("--tokens", options.tokens),
      .compute_seconds = options.compute_seconds};
  const planning::Ranking ranking = must(planning::rank_strategies(
      must(parse_model(model)), must(planning::parse_cluster(cluster)), load));
  return as_table ? to_table(ranking) : to_json(ranking);
}

int compare_on_cluster(const PlanOptions& options, const CLI::App& app) {
  for (const char* option :
       {"--plan", "--ranks", "--ranks-per-node", "--compare", "--nvme", "--memory"}) {
    if (app.count(option) == 0) continue;
    throw Failure(
        fmt::format("--cluster compares all known plans on all its devices: leave {} out", option),
        kUsageError);
  }
  if (!options.plot.empty()) check_picture_name(options.plot);
  const std::string model = read_model(options);
  const std::string cluster = read_text(options.cluster, "a cluster in JSON");
  const std::string text = rank_cluster(options, model, cluster, !options.json);
  fmt::print("{}{}", text, text.ends_with('\n') ? "" : "\n");
  if (options.plot.empty()) return kSuccess;
  std::fflush(stdout);  // before anything that python3 says
  draw_ranking(options.json ? text : rank_cluster(options, model, cluster, false), options.plot);
  return kSuccess;
}

int plan(const PlanOptions& options, const CLI::App& app) {
  if (!options.cluster.empty()) return compare_on_cluster(options, app);
  for (const char* option : {"--tokens", "--compute-seconds", "--plot"}) {
    if (app.count(option) == 0) continue;
    throw Failure(fmt::format("{} is for --cluster: name a cluster's file too", option),
                  kUsageError);
  }
  const meron_workload workload = read_workload(options);
  if (options.compare && app.count("--plan") > 0) {
    throw Failure("--compare shows all the named plans: leave --plan out", kUsageError);
  }
  const uint64_t memory = options.memory.empty() ? 0 : parse_memory(options.memory);
  if (!options.memory.empty() && memory == 0) {
    throw Failure("--memory is 0: give what a machine has, for example 80GiB", kUsageError);
  }
  const std::string model = read_model(options);
  if (!options.compare) {
    const Plan plan(options.plan, options.nvme);
    Json prediction;
    if (options.json || memory != 0) {
      prediction = Json::parse(plan.predict(model, workload, false));
    }
    if (options.json) {
      fmt::print("{}\n", with_fit(std::move(prediction), workload, memory).dump(2));
      return kSuccess;
    }
    const std::string text = plan.predict(model, workload, true);
    fmt::print("{}{}\n{}", text, text.ends_with('\n') ? "" : "\n", kNotCounted);
    if (memory != 0) fmt::print("{}", sentence(fit_of(prediction, workload, memory)));
    return kSuccess;
  }
  Comparison comparison = compare(model, workload);
  const bool several_nodes =
      workload.ranks_per_node != 0 && workload.ranks_per_node < workload.ranks;
  if (options.json) {
    for (Json& prediction : comparison.predictions) {
      prediction = with_fit(std::move(prediction), workload, memory);
    }
    fmt::print("{}\n", Json(comparison.predictions).dump(2));
    return kSuccess;
  }
  fmt::print("{}\n{}", table_of(comparison, several_nodes), kNotCounted);
  for (size_t i = 0; memory != 0 && i < comparison.plans.size(); ++i) {
    fmt::print("{}: {}", comparison.plans[i],
               sentence(fit_of(comparison.predictions[i], workload, memory)));
  }
  return kSuccess;
}

}  // namespace

Subcommand add_plan(CLI::App& parent) {
  CLI::App* app =
      parent.add_subcommand("plan", "Predict memory and traffic of a model under a plan");
  app->footer(kPlanFooter);
  auto options = std::make_shared<PlanOptions>();
  app->add_option("--parameters", options->parameters, "size of the model, e.g. 7B or 350M")
      ->type_name("COUNT");
  app->add_option("--layers", options->layers, "with --parameters: layers, which become units")
      ->type_name("L");
  app->add_option("--dtype", options->dtype,
                  "with --parameters: f32, bf16 (default) or f16, or PyTorch's names")
      ->type_name("DTYPE");
  app->add_option("--safetensors", options->safetensors,
                  "a model's file, or the index of its files")
      ->type_name("FILE");
  app->add_option("--model", options->model,
                  "a model described in JSON, or its Hugging Face config.json")
      ->type_name("FILE");
  app->add_option("--plan", options->plan,
                  "zero0, zero1, zero2, zero3 (default), mics(8), hpz(8), zeropp(8) or a JSON file")
      ->type_name("PLAN");
  app->add_option("-n,--ranks", options->ranks, "how many ranks (2)")->type_name("N");
  app->add_option("--ranks-per-node", options->ranks_per_node,
                  "how many of them share memory, side by side (all)")
      ->type_name("N");
  app->add_option("--micro-batches", options->micro_batches, "per optimizer step (1)")
      ->type_name("N");
  app->add_option("--gathers", options->gathers,
                  "of each unit per micro-batch (2: forward and backward)")
      ->type_name("N");
  app->add_option(
         "--memory", options->memory,
         "of a machine, or of each device if the plan uses devices: report whether it fits")
      ->type_name("SIZE");
  app->add_flag("--compare", options->compare, "show the named plans side by side");
  app->add_option(
         "--nvme", options->nvme,
         "a drive, as described by `meron io-bench --save`: holds the optimizer states, or "
         "what the plan specifies")
      ->type_name("FILE");
  app->add_option("--cluster", options->cluster,
                  "compare all known plans on the machines of a JSON file, by predicted time")
      ->type_name("FILE");
  app->add_option("--tokens", options->tokens,
                  "with --cluster: per device and micro-batch, for the time of computation")
      ->type_name("N");
  app->add_option("--compute-seconds", options->compute_seconds,
                  "with --cluster: what computation takes per micro-batch, instead of --tokens")
      ->type_name("S");
  app->add_option("--plot", options->plot,
                  "with --cluster: draw the plans that fit there (or FILE.pdf, FILE.svg)")
      ->type_name("FILE.png");
  app->add_flag("--json", options->json, "print JSON");
  return {app, [options, app] { return plan(*options, *app); }};
}

}  // namespace meron::tools

// SPDX-License-Identifier: Apache-2.0
// A ranking as JSON and as tables.
#include <fmt/format.h>

#include "base/human_bytes.h"
#include "plan/columns.h"
#include "plan/json_out.h"
#include "plan/plan_json.h"
#include "plan/quantity.h"
#include "tools/meron/planning/step_time.h"

namespace meron::planning {
namespace {

JsonOut seconds(double value) {
  return JsonOut::object({{"seconds", value}, {"human", human_seconds(value)}});
}

// The cluster file with numbers in place of words.
JsonOut cluster_json(const Cluster& cluster) {
  const auto link = [](const LinkSpeed& speed) {
    return JsonOut::object({{"bytes_per_second", speed.rate}, {"latency_seconds", speed.latency}});
  };
  const auto tier = [](const TierSpeed& speed) {
    return JsonOut::object(
        {{"read_bytes_per_second", speed.read}, {"write_bytes_per_second", speed.write}});
  };
  JsonOut out = JsonOut::object({{"name", cluster.name},
                                 {"nodes", cluster.nodes},
                                 {"devices_per_node", cluster.devices_per_node}});
  if (cluster.between.rate > 0) out.add("between_nodes", link(cluster.between));
  if (cluster.inside.rate > 0) {
    out.add("inside_node", link(cluster.inside).add("in_place", cluster.in_place));
  }
  JsonOut device = JsonOut::object({{"memory_bytes", cluster.memory},
                                    {"reserved_bytes", cluster.reserved},
                                    {"memory_bytes_per_second", cluster.memory_rate}});
  if (cluster.flops > 0) device.add("flops_per_second", cluster.flops);
  out.add("device", device);
  if (cluster.nvme) out.add("nvme", tier(*cluster.nvme));
  if (cluster.pcie) out.add("pcie", tier(*cluster.pcie));
  return out;
}

JsonOut link_json(const LinkCost& link) {
  return JsonOut::object({{"traffic", bytes_json(link.bytes)},
                          {"messages", link.messages},
                          {"transfer", seconds(link.transfer)},
                          {"waiting", seconds(link.waiting)},
                          {"time", seconds(link.seconds())}});
}

JsonOut step_json(double step, double computing) {
  return JsonOut::object({{"step", seconds(step)}, {"exposed", seconds(step - computing)}});
}

JsonOut work_json(uint64_t bytes, double time) {
  return JsonOut::object({{"traffic", bytes_json(bytes)}, {"time", seconds(time)}});
}

JsonOut estimate_json(const Estimate& cost) {
  const JsonOut memory = JsonOut::object({{"states", bytes_json(cost.memory.states)},
                                          {"gathered", bytes_json(cost.memory.gathered)},
                                          {"total", bytes_json(cost.memory.total())},
                                          {"available", bytes_json(cost.memory.available)},
                                          {"lacking", bytes_json(cost.memory.lacking())}});
  return JsonOut::object(
      {{"name", cost.plan.name},
       {"fits", cost.memory.fits()},
       {"lossy", cost.lossy},
       {"perfect_overlap", step_json(cost.with_overlap(), cost.computing)},
       {"no_overlap", step_json(cost.without_overlap(), cost.computing)},
       {"between_nodes", link_json(cost.between)},
       {"inside_node", link_json(cost.inside)},
       {"copies", work_json(cost.copied, cost.copying)},
       {"update", work_json(cost.updated, cost.updating)},
       {"computation", seconds(cost.computing)},
       {"memory", memory},
       {"mesh", JsonOut::object({{"replicas", cost.mesh.replicas}, {"shards", cost.mesh.shards}})},
       {"plan", JsonOut::of_text(to_json(cost.plan, -1))}});
}

JsonOut texts_json(const std::vector<std::string>& texts) {
  JsonOut out = JsonOut::array();
  for (const std::string& text : texts) out.push(text);
  return out;
}

// Keys of the file that no plan uses yet.
std::vector<std::string> notes(const Cluster& cluster) {
  std::vector<std::string> out;
  for (const auto& [tier, key] : {std::pair{&cluster.nvme, "nvme"}, {&cluster.pcie, "pcie"}}) {
    if (!tier->has_value()) continue;
    out.push_back(
        fmt::format("the cluster's \"{}\" is not used yet: no plan keeps states there", key));
  }
  return out;
}

using Cells = std::vector<std::string>;

std::string by_time(const Ranking& ranking) {
  std::vector<Cells> rows = {
      {"plan", "overlap", "exposed", "no overlap", "exposed", "memory", "fits"}};
  for (const Estimate& cost : ranking.estimates) {
    rows.push_back(
        {cost.plan.name, human_seconds(cost.with_overlap()),
         human_seconds(cost.with_overlap() - cost.computing), human_seconds(cost.without_overlap()),
         human_seconds(cost.without_overlap() - cost.computing), human_bytes(cost.memory.total()),
         cost.memory.fits() ? "yes" : "lacks " + human_bytes(cost.memory.lacking())});
  }
  return in_columns(rows, 1);
}

std::string by_link(const Ranking& ranking) {
  std::vector<Cells> rows = {{"plan", "between nodes", "messages", "time", "inside a node",
                              "messages", "time", "copies", "update"}};
  for (const Estimate& cost : ranking.estimates) {
    rows.push_back({cost.plan.name, human_bytes(cost.between.bytes),
                    std::to_string(cost.between.messages), human_seconds(cost.between.seconds()),
                    human_bytes(cost.inside.bytes), std::to_string(cost.inside.messages),
                    human_seconds(cost.inside.seconds()), human_seconds(cost.copying),
                    human_seconds(cost.updating)});
  }
  return in_columns(rows, 1);
}

std::string link_words(const LinkSpeed& link) {
  return fmt::format("{} and {}", human_rate(link.rate), human_seconds(link.latency));
}

std::string head(const Ranking& ranking) {
  const Cluster& cluster = ranking.cluster;
  std::string out = fmt::format("cluster {}: {} node{} of {} device{}", cluster.name, cluster.nodes,
                                cluster.nodes == 1 ? "" : "s", cluster.devices_per_node,
                                cluster.devices_per_node == 1 ? "" : "s");
  if (cluster.nodes > 1) out += fmt::format(", between nodes {}", link_words(cluster.between));
  if (cluster.devices_per_node > 1) {
    out += fmt::format(", inside a node {}", link_words(cluster.inside));
  }
  const double computing = ranking.estimates.empty() ? 0 : ranking.estimates.front().computing;
  out += fmt::format(
      "\nmodel: {} elements in {} units; micro-batches per step {}, gathers per micro-batch {}, "
      "computation {}\n",
      ranking.elements, ranking.units, ranking.load.micro_batches,
      ranking.load.gathers_per_micro_batch, human_seconds(computing));
  return out;
}

}  // namespace

std::string to_json(const Ranking& ranking, int indent) {
  JsonOut estimates = JsonOut::array();
  for (const Estimate& cost : ranking.estimates) estimates.push(estimate_json(cost));
  const ClusterLoad& load = ranking.load;
  const JsonOut workload =
      JsonOut::object({{"micro_batches", load.micro_batches},
                       {"gathers_per_micro_batch", load.gathers_per_micro_batch},
                       {"tokens", load.tokens},
                       {"compute_seconds", load.compute_seconds}});
  return JsonOut::object({{"cluster", cluster_json(ranking.cluster)},
                          {"model", JsonOut::object({{"units", ranking.units},
                                                     {"elements", ranking.elements}})},
                          {"workload", workload},
                          {"strategies", estimates},
                          {"explanation", texts_json(explain(ranking))},
                          {"not_counted", JsonOut::array({"activations"})},
                          {"notes", texts_json(notes(ranking.cluster))}})
      .dump(indent);
}

std::string to_table(const Ranking& ranking) {
  std::string out = fmt::format(
      "{}\nseconds per optimizer step, with perfect overlap and with none, and what of it is no "
      "computation; memory per device, without activations\n{}\n"
      "what the busiest node and the busiest device of a node take from others, per step\n{}\n",
      head(ranking), by_time(ranking), by_link(ranking));
  for (const std::string& sentence : explain(ranking)) out += sentence + "\n";
  for (const std::string& note : notes(ranking.cluster)) out += "note: " + note + "\n";
  return out;
}

}  // namespace meron::planning

// SPDX-License-Identifier: Apache-2.0
// A prediction as JSON and as tables.
#include <fmt/format.h>

#include "base/human_bytes.h"
#include "plan/codec_losses.h"
#include "plan/columns.h"
#include "plan/json_out.h"
#include "plan/plan_json.h"
#include "plan/predict.h"

namespace meron {
namespace {

JsonOut memory_json(const MemoryPrediction& memory) {
  return JsonOut::object({{"param", bytes_json(memory.param)},
                          {"secondary_partition", bytes_json(memory.secondary_partition)},
                          {"gradient", bytes_json(memory.gradient())},
                          {"gradient_buckets", bytes_json(memory.gradient_buckets)},
                          {"reduced_gradient", bytes_json(memory.reduced_gradient)},
                          {"feedback", bytes_json(memory.feedback)},
                          {"optimizer", bytes_json(memory.optimizer())},
                          {"moments", bytes_json(memory.moments)},
                          {"master", bytes_json(memory.master)},
                          {"state_buffers", bytes_json(memory.state_buffers)},
                          {"param_buffers", bytes_json(memory.param_buffers)},
                          {"total", bytes_json(memory.total())}});
}

JsonOut rank_json(const RankPrediction& rank) {
  const JsonOut nvme = JsonOut::object(
      {{"optimizer", bytes_json(rank.nvme.optimizer)}, {"param", bytes_json(rank.nvme.param)}});
  const JsonOut device = JsonOut::object({{"param", bytes_json(rank.device.param)},
                                          {"gradient", bytes_json(rank.device.gradient)},
                                          {"optimizer", bytes_json(rank.device.optimizer)},
                                          {"total", bytes_json(rank.device.total())}});
  const JsonOut shm = JsonOut::object({{"gather_mapped", bytes_json(rank.links.gather_mapped)},
                                       {"gather_copied", bytes_json(rank.links.gather_copied)},
                                       {"reduce", bytes_json(rank.links.reduce)}});
  const JsonOut between = JsonOut::object({{"gather", bytes_json(rank.links.inter_node_gather)},
                                           {"reduce", bytes_json(rank.links.inter_node_reduce)}});
  const JsonOut drive = JsonOut::object(
      {{"read", bytes_json(rank.nvme.read)}, {"written", bytes_json(rank.nvme.written)}});
  return JsonOut::object(
      {{"memory",
        JsonOut::object({{"host", memory_json(rank.memory)}, {"nvme", nvme}, {"device", device}})},
       {"links", JsonOut::object({{"shm", shm}, {"between_nodes", between}, {"nvme", drive}})}});
}

using Cells = std::vector<std::string>;

Cells memory_cells(const RankPrediction& rank) {
  return {human_bytes(rank.memory.params()), human_bytes(rank.memory.gradient()),
          human_bytes(rank.memory.optimizer()), human_bytes(rank.memory.total())};
}

Cells link_cells(const RankPrediction& rank) {
  return {human_bytes(rank.links.gather_mapped), human_bytes(rank.links.gather_copied),
          human_bytes(rank.links.reduce)};
}

Cells remote_cells(const RankPrediction& rank) {
  return {human_bytes(rank.links.inter_node_gather), human_bytes(rank.links.inter_node_reduce),
          human_bytes(rank.links.inter_node_gather + rank.links.inter_node_reduce)};
}

Cells nvme_cells(const RankPrediction& rank) {
  return {human_bytes(rank.nvme.optimizer), human_bytes(rank.nvme.param),
          human_bytes(rank.nvme.read), human_bytes(rank.nvme.written)};
}

Cells device_cells(const RankPrediction& rank) {
  return {human_bytes(rank.device.param), human_bytes(rank.device.gradient),
          human_bytes(rank.device.optimizer), human_bytes(rank.device.total())};
}

// A line per run of ranks with equal cells, and one for all ranks together.
std::string per_rank(const Prediction& prediction, Cells head,
                     Cells (*cells_of)(const RankPrediction&)) {
  std::vector<Cells> rows = {std::move(head)};
  const auto add = [&](std::string who, Cells cells) {
    cells.insert(cells.begin(), std::move(who));
    rows.push_back(std::move(cells));
  };
  const auto& ranks = prediction.ranks;
  for (size_t first = 0; first < ranks.size();) {
    const Cells cells = cells_of(ranks[first]);
    size_t end = first + 1;
    while (end < ranks.size() && cells_of(ranks[end]) == cells) ++end;
    add(end == first + 1 ? fmt::format("{}", first) : fmt::format("{}-{}", first, end - 1), cells);
    first = end;
  }
  if (ranks.size() > 1) add("all", cells_of(prediction.total));
  return in_columns(rows, 1);
}

// A run with this plan logs these. One replica uses no codec.
std::vector<std::string> warnings_of(const Prediction& prediction) {
  if (prediction.mesh.replicas == 1) return {};
  return codec_losses(prediction.plan);
}

std::string plural(uint64_t count, std::string_view noun, std::string_view ending = "s") {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : ending);
}

}  // namespace

std::string to_json(const Prediction& prediction, int indent) {
  JsonOut ranks = JsonOut::array();
  for (size_t r = 0; r < prediction.ranks.size(); ++r) {
    ranks.push(JsonOut::object({{"rank", r}}).add_members(rank_json(prediction.ranks[r])));
  }
  const Workload& load = prediction.workload;
  const JsonOut workload =
      JsonOut::object({{"ranks", load.ranks},
                       {"ranks_per_node", load.node == 0 ? load.ranks : load.node},
                       {"micro_batches", load.micro_batches},
                       {"gathers_per_micro_batch", load.gathers_per_micro_batch}});
  const JsonOut model = JsonOut::object({{"units", prediction.units},
                                         {"elements", prediction.elements},
                                         {"trainable_elements", prediction.trainable_elements}});
  JsonOut out =
      JsonOut::object({{"plan", JsonOut::of_text(to_json(prediction.plan, -1))},
                       {"workload", workload},
                       {"model", model},
                       {"peak", JsonOut::object({{"host", bytes_json(prediction.peak_host)}})},
                       {"total", rank_json(prediction.total)},
                       {"ranks", ranks}});
  if (const auto losses = warnings_of(prediction); !losses.empty()) {
    JsonOut warnings = JsonOut::array();
    for (const std::string& loss : losses) warnings.push(loss);
    out.add("warnings", warnings);
  }
  if (prediction.plan.nvme.rates.known()) {
    const NvmeTime time = nvme_time(prediction);
    out.add("nvme_seconds", JsonOut::object({{"states", time.states},
                                             {"update", time.update},
                                             {"step", time.step()},
                                             {"values", time.values}}));
  }
  return out.dump(indent);
}

std::string to_table(const Prediction& prediction) {
  const Workload& load = prediction.workload;
  std::string out = fmt::format(
      "plan {}: {}, {}, {} of {} trainable\n\n"
      "memory per rank, tier host\n{}\n"
      "bytes from peers per rank and optimizer step ({}, {} each)\n{}",
      prediction.plan.name, plural(load.ranks, "rank"), plural(prediction.units, "unit"),
      prediction.trainable_elements, plural(prediction.elements, "element"),
      per_rank(prediction, {"rank", "param", "gradient", "optimizer", "total"}, memory_cells),
      plural(load.micro_batches, "micro-batch", "es"),
      plural(load.gathers_per_micro_batch, "gather"),
      per_rank(prediction, {"rank", "gather in place", "gather by copy", "reduce"}, link_cells));
  if (load.node != 0 && load.node < load.ranks) {
    out +=
        fmt::format("\nof these, from other nodes ({} a node)\n{}", plural(load.node, "rank"),
                    per_rank(prediction, {"rank", "gather", "reduce", "together"}, remote_cells));
  }
  if (uses_device(prediction.plan)) {
    out += fmt::format(
        "\nmemory per rank, tier device\n{}",
        per_rank(prediction, {"rank", "param", "gradient", "optimizer", "total"}, device_cells));
  }
  if (!prediction.plan.nvme.path.empty()) {
    out += fmt::format(
        "\ntier nvme per rank, and what goes there and back per optimizer step\n{}",
        per_rank(prediction, {"rank", "optimizer", "param", "read", "written"}, nvme_cells));
    if (prediction.plan.nvme.rates.known()) {
      const NvmeTime time = nvme_time(prediction);
      out += fmt::format(
          "\nby the measured rates, per node: an optimizer step takes about {:.3g} s\n"
          "(states to and from nvme {:.3g} s, update {:.3g} s, at the same time)\n",
          time.step(), time.states, time.update);
      if (time.values > 0.0) {
        out += fmt::format("and its parameters are {:.3g} s on their way, ahead of their use\n",
                           time.values);
      }
    }
  }
  for (const std::string& warning : warnings_of(prediction)) out += fmt::format("\n{}.\n", warning);
  return out;
}

}  // namespace meron

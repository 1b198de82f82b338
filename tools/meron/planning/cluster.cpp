// SPDX-License-Identifier: Apache-2.0
#include "tools/meron/planning/cluster.h"

#include <fmt/format.h>

#include "plan/json_out.h"
#include "plan/json_text.h"
#include "plan/plan.h"
#include "plan/quantity.h"
#include "plan/text.h"

namespace meron::planning {
namespace {

constexpr uint32_t kMaxClusterDepth = 4;

enum class Zero : uint8_t { refused, allowed };

Result<double> read_quantity(JsonValue value, QuantityKind kind, Zero zero = Zero::refused) {
  MERON_ASSIGN(const std::string_view text, value.string());
  const Result<double> got = parse_quantity(text, kind);
  if (!got) return value.error(MERON_E_PARSE, got.error().info().what, got.error().info().advice);
  // A rate below that is a slip, and times would leave what a double can hold.
  if (*got < 1 && zero == Zero::refused) {
    return value.error(MERON_E_PARSE, fmt::format("{} is too little", in_quotes(text)),
                       "give what the machine has");
  }
  return *got;
}

Result<double> require_quantity(JsonValue object, std::string_view key, QuantityKind kind,
                                Zero zero = Zero::refused) {
  MERON_ASSIGN(const JsonValue value, object.require(key));
  return read_quantity(value, kind, zero);
}

Status read_speed(JsonValue value, LinkSpeed& link) {
  MERON_ASSIGN(link.rate, require_quantity(value, "rate", QuantityKind::byte_rate));
  MERON_ASSIGN(link.latency,
               require_quantity(value, "latency", QuantityKind::seconds, Zero::allowed));
  return Ok{};
}

Status read_links(JsonValue root, Cluster& cluster) {
  if (const auto between = root.find("between_nodes")) {
    MERON_TRY(between->object({"rate", "latency"}));
    MERON_TRY(read_speed(*between, cluster.between));
  } else if (cluster.nodes > 1) {
    return root.require("between_nodes").error();
  }
  if (const auto inside = root.find("inside_node")) {
    MERON_TRY(inside->object({"rate", "latency", "in_place"}));
    MERON_TRY(read_speed(*inside, cluster.inside));
    if (const auto in_place = inside->find("in_place")) {
      MERON_ASSIGN(cluster.in_place, in_place->boolean());
    }
  } else if (cluster.devices_per_node > 1) {
    return root.require("inside_node").error();
  }
  return Ok{};
}

Status read_device(JsonValue root, Cluster& cluster) {
  MERON_ASSIGN(const JsonValue device, root.require("device"));
  MERON_TRY(device.object({"memory", "reserved", "memory_rate", "flops"}));
  MERON_ASSIGN(cluster.memory, require_quantity(device, "memory", QuantityKind::bytes));
  MERON_ASSIGN(cluster.memory_rate,
               require_quantity(device, "memory_rate", QuantityKind::byte_rate));
  if (const auto reserved = device.find("reserved")) {
    MERON_ASSIGN(cluster.reserved, read_quantity(*reserved, QuantityKind::bytes, Zero::allowed));
    if (cluster.reserved >= cluster.memory) {
      return reserved->error(MERON_E_PARSE, "no memory is left for the model's states",
                             "reserve less than the device has");
    }
  }
  if (const auto flops = device.find("flops")) {
    MERON_ASSIGN(cluster.flops, read_quantity(*flops, QuantityKind::work_rate));
  }
  return Ok{};
}

Status read_tier(JsonValue root, std::string_view key, std::optional<TierSpeed>& tier) {
  const auto value = root.find(key);
  if (!value) return Ok{};
  MERON_TRY(value->object({"read", "write"}));
  TierSpeed speed;
  MERON_ASSIGN(speed.read, require_quantity(*value, "read", QuantityKind::byte_rate));
  MERON_ASSIGN(speed.write, require_quantity(*value, "write", QuantityKind::byte_rate));
  tier = speed;
  return Ok{};
}

// Every double has a text of this form that is read back to it.
std::string exactly(double value, const char* unit) {
  return fmt::format("{} {}", value, unit);
}

}  // namespace

Result<Cluster> parse_cluster(std::string_view json) {
  MERON_ASSIGN(
      const JsonText text,
      JsonText::parse(json, "cluster", {.bytes = kMaxClusterText, .depth = kMaxClusterDepth}));
  const JsonValue root = text.root();
  MERON_TRY(root.object({"name", "nodes", "devices_per_node", "between_nodes", "inside_node",
                         "device", "nvme", "pcie"}));
  Cluster cluster;
  if (const auto name = root.find("name")) {
    MERON_ASSIGN(const std::string_view given, name->string());
    if (const Status valid = check_plan_name(given); !valid) {
      return name->error(MERON_E_PARSE, valid.error().info().what, "give it a shorter, plain name");
    }
    cluster.name = given;
  }
  MERON_ASSIGN(const JsonValue nodes, root.require("nodes"));
  MERON_ASSIGN(const uint64_t node_count, nodes.count(1, kMaxClusterDevices));
  MERON_ASSIGN(const JsonValue devices, root.require("devices_per_node"));
  MERON_ASSIGN(const uint64_t device_count, devices.count(1, kMaxClusterDevices));
  if (node_count * device_count > kMaxClusterDevices) {
    return devices.error(
        MERON_E_PARSE,
        fmt::format("{} nodes of {} are {} devices, more than the limit of {}", node_count,
                    device_count, node_count * device_count, kMaxClusterDevices),
        "check both numbers");
  }
  cluster.nodes = static_cast<uint32_t>(node_count);
  cluster.devices_per_node = static_cast<uint32_t>(device_count);
  if (cluster.name.empty()) {
    cluster.name = fmt::format("{} x {}", cluster.nodes, cluster.devices_per_node);
  }
  MERON_TRY(read_links(root, cluster));
  MERON_TRY(read_device(root, cluster));
  MERON_TRY(read_tier(root, "nvme", cluster.nvme));
  MERON_TRY(read_tier(root, "pcie", cluster.pcie));
  return cluster;
}

std::string to_json(const Cluster& cluster, int indent) {
  const auto link = [](const LinkSpeed& speed) {
    return JsonOut::object(
        {{"rate", exactly(speed.rate, "B/s")}, {"latency", exactly(speed.latency, "s")}});
  };
  const auto tier = [](const TierSpeed& speed) {
    return JsonOut::object(
        {{"read", exactly(speed.read, "B/s")}, {"write", exactly(speed.write, "B/s")}});
  };
  JsonOut out = JsonOut::object({{"name", cluster.name},
                                 {"nodes", cluster.nodes},
                                 {"devices_per_node", cluster.devices_per_node}});
  if (cluster.between.rate > 0) out.add("between_nodes", link(cluster.between));
  if (cluster.inside.rate > 0) {
    out.add("inside_node", link(cluster.inside).add("in_place", cluster.in_place));
  }
  JsonOut device = JsonOut::object({{"memory", exactly(cluster.memory, "B")},
                                    {"reserved", exactly(cluster.reserved, "B")},
                                    {"memory_rate", exactly(cluster.memory_rate, "B/s")}});
  if (cluster.flops > 0) device.add("flops", exactly(cluster.flops, "FLOP/s"));
  out.add("device", device);
  if (cluster.nvme) out.add("nvme", tier(*cluster.nvme));
  if (cluster.pcie) out.add("pcie", tier(*cluster.pcie));
  return out.dump(indent);
}

}  // namespace meron::planning

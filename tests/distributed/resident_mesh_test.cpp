// SPDX-License-Identifier: Apache-2.0
// Replicas of shards, all or some of them on devices, that train to the bits of those on the host.
// The device is as in device_test.cpp.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tests/distributed/device_trainer.h"

namespace meron::test {
namespace {

// The entries on devices with a communicator of their own. `shared`: all entries, and the host
// exchanges, because ranks share a device.
enum class Where { all, values, shared };

// The same rows on devices as on the host.
struct Mesh {
  int ranks, shards;
  const char *param, *gradient, *optimizer;
  meron_dtype dtype = MERON_F32;
  bool finishes = false;   // the accumulation, by a call of its own
  bool scheduled = false;  // units by a schedule
  int node = 0;            // ranks of each, in a cluster; 0: all share one
  bool copied = false;     // params have a secondary partition
  const char* codec = "";  // of gradients
  const char* value_codec = "";
  Where where = Where::all;
  bool overflows = false;  // one step
  // gather_window: all full values fit into 64 KiB, and into 20 kB the largest param or others.
  const char* window = "";
};
constexpr const char* kShard = "shard";
constexpr const char* kWorld = "replica x shard";
// Codecs of gradients. The residual is dropped after five exchanges.
constexpr const char* kInt4 = R"({"kind": "int4", "feedback": {"beta": 0.8, "reset": 5}})";
constexpr const char* kRandom =
    R"({"kind": "int8", "block": 64, "rounding": "stochastic", "hadamard": true})";

std::string mesh_plan(const Mesh& mesh, bool on_device) {
  const auto row = [&](const char* name, const char* sharding, std::string rest) {
    const bool value = std::strcmp(name, "param") == 0;
    if (on_device && (value || mesh.where != Where::values)) rest += R"(, "tier": "device")";
    return std::string(R"(, ")").append(name) + R"(": {"sharding": ")" + sharding + "\"" + rest +
           "}";
  };
  const auto codec = [](const char* text) {
    return *text == '\0' ? std::string() : std::string(R"(, "codec": )") + text;
  };
  std::string more = mesh.copied ? R"(, "secondary_partition": "shard")" : "";
  if (on_device && mesh.copied) more += R"(, "register_values": true)";
  if (on_device && *mesh.window != '\0') {
    more += std::string(R"(, "gather_window": ")") + mesh.window + "\"";
  }
  return R"({"mesh": {"shard": )" + std::to_string(mesh.shards) + "}" +
         row("param", mesh.param, more + codec(mesh.value_codec)) +
         row("gradient", mesh.gradient, codec(mesh.codec)) + row("optimizer", mesh.optimizer, "") +
         "}";
}

class MeshOnDevicesTest : public testing::TestWithParam<Mesh> {};

TEST_P(MeshOnDevicesTest, ReplicasTrainToTheSameBits) {
  const Mesh& mesh = GetParam();
  if (!emulated() && mesh.where != Where::shared) GTEST_SKIP() << "needs a device for each rank";
  const char* const transport = mesh.node > 0 ? "cluster" : "local";
  const bool apart = mesh.where != Where::shared;
  DeviceConfig config{"", mesh.ranks, mesh.dtype, mesh.dtype, transport, apart};
  config.finishes = mesh.finishes;
  config.scheduled = mesh.scheduled;
  config.overflows = mesh.overflows;
  const auto losses = static_cast<size_t>(kDeviceSteps * kDeviceAccumulate * mesh.ranks);
  const size_t weights = weight_count() * static_cast<size_t>(mesh.ranks);
  Shared<float> host_losses(losses), device_losses(losses);
  Shared<float> host_weights(weights), device_weights(weights);
  Shared<meron_stats> host(1), device(1);
  Shared<meron_prediction> predicted(1);
  const auto run = [&](bool on_device) {
    World world{transport, mesh.ranks, mesh_plan(mesh, on_device)};
    world.node = mesh.node;
    if (on_device) world.device = kDevice;
    world.devices = on_device && apart;
    // Shards and secondary partitions have to be registered; encoded values for a gather cannot be.
    const bool registered = mesh.copied && *mesh.value_codec == '\0';
    const char* const own = registered ? "count=8,registers=2" : "count=8";
    ::setenv("MERON_EMULATED_DEVICE", apart ? own : "shared=1", 1);
    const bool well = run_world(world, [&](int rank, meron_context context) {
      meron_stats stats{};
      train(config, rank, context, on_device, (on_device ? device_losses : host_losses).data(),
            (on_device ? device_weights : host_weights).data(), &stats);
      if (rank != 0) return;
      (on_device ? device : host)[0] = stats;
      meron_workload workload = MERON_WORKLOAD_INIT;
      workload.micro_batches = kDeviceAccumulate;
      workload.gathers_per_micro_batch = 1;
      predicted[0].struct_size = sizeof(meron_prediction);
      CALL(meron_context_predict, predicted.data(), context, &workload);
    });
    ::unsetenv("MERON_EMULATED_DEVICE");
    return well;
  };
  ASSERT_TRUE(run(false));
  ASSERT_TRUE(run(true));
  EXPECT_EQ(std::memcmp(host_losses.data(), device_losses.data(), losses * sizeof(float)), 0);
  EXPECT_EQ(std::memcmp(host_weights.data(), device_weights.data(), weights * sizeof(float)), 0);
  EXPECT_EQ(device[0].device_down_bytes == 0, mesh.where == Where::all);
  // Buckets go to replicas as they are, where on the host their sums in f32 do.
  EXPECT_LE(device[0].reduce_bytes, host[0].reduce_bytes);
  EXPECT_EQ(device[0].param_bytes, predicted[0].param_bytes);
  if (apart) {
    EXPECT_EQ(device[0].device_bytes, predicted[0].device_bytes);
  }
  if (mesh.scheduled || mesh.overflows) return;
  constexpr uint64_t kSteps = kDeviceSteps;
  EXPECT_EQ(device[0].gather_mapped_bytes, kSteps * predicted[0].gather_mapped_bytes);
  EXPECT_EQ(device[0].gather_copied_bytes, kSteps * predicted[0].gather_copied_bytes);
  EXPECT_EQ(device[0].inter_node_gather_bytes, kSteps * predicted[0].inter_node_gather_bytes);
  EXPECT_EQ(device[0].reduce_bytes, kSteps * predicted[0].reduce_bytes);
  EXPECT_EQ(device[0].inter_node_reduce_bytes, kSteps * predicted[0].inter_node_reduce_bytes);
}

INSTANTIATE_TEST_SUITE_P(
    Plans, MeshOnDevicesTest,
    testing::Values(
        Mesh{4, 2, kShard, kShard, kShard}, Mesh{4, 2, kShard, kShard, kShard, MERON_BF16},
        Mesh{2, 1, kShard, kShard, kShard}, Mesh{3, 1, kShard, kShard, kShard, MERON_BF16},
        Mesh{3, 1, kShard, kShard, kWorld}, Mesh{2, 1, kShard, kShard, kWorld, MERON_BF16},
        Mesh{3, 1, kShard, kWorld, kWorld}, Mesh{4, 1, kShard, kWorld, kWorld, MERON_BF16},
        Mesh{4, 2, kShard, kShard, kWorld}, Mesh{6, 2, kShard, kWorld, kWorld, MERON_BF16},
        Mesh{4, 2, kWorld, kWorld, kWorld}, Mesh{6, 3, kWorld, kWorld, kWorld, MERON_BF16},
        Mesh{3, 1, kWorld, kWorld, kWorld}, Mesh{1, 1, kShard, kShard, kShard},
        Mesh{4, 2, kShard, kShard, kShard, MERON_BF16, true},
        Mesh{3, 1, kShard, kShard, kWorld, MERON_BF16, true},
        Mesh{3, 1, kShard, kWorld, kWorld, MERON_BF16, true},
        Mesh{4, 2, kShard, kShard, kWorld, MERON_BF16, false, true},
        Mesh{1, 1, kShard, kShard, kShard, MERON_F32, false, true},
        Mesh{3, 3, kWorld, kWorld, kWorld, MERON_F32, false, true},
        Mesh{4, 4, kShard, kShard, kShard, MERON_F32, false, false, 2},
        Mesh{4, 2, kShard, kShard, kShard, MERON_BF16, false, false, 2},
        Mesh{4, 2, kShard, kShard, kWorld, MERON_F32, false, false, 2},
        Mesh{4, 1, kShard, kWorld, kWorld, MERON_BF16, false, false, 2},
        Mesh{4, 2, kWorld, kWorld, kWorld, MERON_BF16, false, false, 2},
        Mesh{4, 2, kWorld, kWorld, kWorld, MERON_BF16, false, false, 2, true},
        Mesh{6, 3, kWorld, kWorld, kWorld, MERON_F32, false, false, 0, true},
        Mesh{3, 1, kWorld, kWorld, kWorld, MERON_BF16, true, false, 0, true},
        Mesh{4, 2, kWorld, kWorld, kWorld, MERON_F32, false, true, 0, true},
        Mesh{2, 2, kWorld, kWorld, kWorld, MERON_F32, false, false, 0, true},
        Mesh{4, 2, kWorld, kWorld, kWorld, MERON_BF16, false, false, 2, true, kInt4},
        Mesh{6, 2, kWorld, kWorld, kWorld, MERON_F32, false, false, 2, false, kRandom},
        Mesh{3, 1, kShard, kWorld, kWorld, MERON_BF16, false, false, 0, false, kInt4},
        Mesh{4, 2, kShard, kShard, kShard, MERON_F32, false, false, 2, false, kInt4},
        Mesh{4, 2, kShard, kShard, kShard, MERON_F32, true, false, 0, false, kRandom},
        Mesh{3, 1, kShard, kShard, kShard, MERON_BF16, false, false, 0, false, kInt4},
        Mesh{4, 2, kShard, kShard, kWorld, MERON_BF16, false, false, 0, false, R"("bf16")"},
        Mesh{4, 2, kWorld, kWorld, kWorld, MERON_BF16, false, false, 2, true, kInt4, R"("int8")"},
        Mesh{4, 2, kWorld, kWorld, kWorld, MERON_F32, false, false, 2, false, "", R"("bf16")"},
        Mesh{6, 2, kWorld, kWorld, kWorld, MERON_F32, true, false, 2, false, kInt4, kRandom},
        Mesh{3, 1, kWorld, kWorld, kWorld, MERON_BF16, false, false, 0, false, "", kRandom},
        Mesh{3, 1, kWorld, kWorld, kWorld, MERON_BF16, false, false, 0, true, kInt4, R"("int8")"},
        Mesh{4, 2, kWorld, kWorld, kWorld, MERON_F32, false, true, 0, true, kInt4, R"("int8")"},
        Mesh{4, 2, kWorld, kWorld, kWorld, MERON_BF16, false, false, 2, true, kInt4, R"("int8")",
             Where::values},
        Mesh{4, 2, kWorld, kWorld, kWorld, MERON_F32, false, false, 0, true, "", "", Where::values},
        Mesh{3, 1, kWorld, kWorld, kWorld, MERON_F32, true, false, 0, false, "", kRandom,
             Where::values},
        Mesh{4, 2, kShard, kShard, kWorld, MERON_BF16, false, false, 2, false, "", "",
             Where::values},
        Mesh{4, 2, kWorld, kWorld, kWorld, MERON_BF16, false, false, 2, false, kInt4, R"("int8")",
             Where::shared},
        Mesh{4, 2, kShard, kShard, kShard, MERON_F32, false, false, 0, false, kInt4, "",
             Where::shared},
        Mesh{4, 2, kWorld, kWorld, kWorld, MERON_F32, false, false, 0, true, kInt4, R"("int8")",
             Where::all, true},
        Mesh{4, 2, kShard, kShard, kShard, MERON_BF16, false, false, 0, false, kInt4, "",
             Where::all, true},
        Mesh{4, 2, kShard, kShard, kShard, MERON_F32, false, false, 0, false, "", "", Where::all,
             false, "64 KiB"},
        Mesh{3, 3, kWorld, kWorld, kWorld, MERON_BF16, false, true, 0, false, "", "", Where::all,
             false, "64 KiB"},
        Mesh{4, 2, kWorld, kWorld, kWorld, MERON_BF16, false, false, 2, true, kInt4, R"("int8")",
             Where::all, false, "64 KiB"},
        Mesh{4, 4, kShard, kShard, kShard, MERON_F32, true, true, 2, false, "", "", Where::all,
             false, "20 kB"}),
    [](const testing::TestParamInfo<Mesh>& info) { return "Case" + std::to_string(info.index); });

}  // namespace
}  // namespace meron::test

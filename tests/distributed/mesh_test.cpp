// SPDX-License-Identifier: Apache-2.0
// Plans with a mesh: N ranks against one process that takes the same sums, first along each shard
// axis and then over the replicas, and gets the same bits: whether the ranks share memory, share
// none, or share it by nodes. The same runs hold counted bytes against predicted ones.
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "tests/distributed/mesh_twin.h"

namespace meron::test {
namespace {

struct Kind {
  const char* name;
  std::string (*plan)(int shards);
  bool local, apart;
};

std::string call_of(const char* name, int shards) {
  return std::string(name) + "(" + std::to_string(shards) + ")";
}
std::string table(int shards, const char* param, const char* gradient, const char* optimizer) {
  return R"({"mesh": {"shard": )" + std::to_string(shards) + R"(}, "param": {"sharding": ")" +
         param + R"("}, "gradient": {"sharding": ")" + gradient +
         R"("}, "optimizer": {"sharding": ")" + optimizer + R"("}})";
}

constexpr const char* kWorld = "replica x shard";

const Kind kKinds[] = {
    {"mics", [](int s) { return call_of("mics", s); }, false, false},
    {"hpz", [](int s) { return call_of("hpz", s); }, false, true},
    {"zero3_by_node", [](int s) { return table(s, kWorld, kWorld, kWorld); }, false, true},
    {"mics_with_optimizer_over_all", [](int s) { return table(s, "shard", "shard", kWorld); },
     false, false},
    {"rows_with_parts_of_gradients", [](int s) { return table(s, "shard", kWorld, kWorld); }, false,
     true},
    {"zero1_by_rows", [](int s) { return table(s, "none", "none", "shard"); }, true, false},
    {"zero1_by_parts", [](int s) { return table(s, "none", "none", kWorld); }, true, false},
    {"zero2_by_rows", [](int s) { return table(s, "none", "shard", "shard"); }, false, false},
    {"zero2_by_parts", [](int s) { return table(s, "none", kWorld, kWorld); }, false, true},
    {"whole_gradients_of_rows", [](int s) { return table(s, "shard", "none", "shard"); }, true,
     false},
};

// Transport, ranks, shards, node.
using Shape = std::tuple<const char*, int, int, int>;
class Mesh : public testing::TestWithParam<std::tuple<size_t, Shape, int>> {};

TEST_P(Mesh, EqualsOneProcess) {
  const auto& [which, shape, accumulate] = GetParam();
  const auto& [transport, ranks, shards, node] = shape;
  const Kind& kind = kKinds[which];
  Config config{.world = {.transport = transport, .ranks = ranks, .plan = kind.plan(shards)},
                .shards = shards,
                .accumulate = accumulate,
                .finish = accumulate == 2,
                .local = kind.local,
                .apart = kind.apart && shards < ranks};
  config.world.node = node;
  expect_twins(config);
}

std::string name_of(const testing::TestParamInfo<Mesh::ParamType>& info) {
  const auto& [which, shape, accumulate] = info.param;
  const auto& [transport, ranks, shards, node] = shape;
  return std::string(kKinds[which].name) + "_" + transport + "_n" + std::to_string(ranks) + "_s" +
         std::to_string(shards) + "_node" + std::to_string(node) + "_a" +
         std::to_string(accumulate);
}

INSTANTIATE_TEST_SUITE_P(
    Plans, Mesh,
    testing::Combine(testing::Range<size_t>(0, std::size(kKinds)),
                     testing::Values(Shape{"shm", 4, 2, 0}, Shape{"shm", 4, 1, 0},
                                     Shape{"sockets", 4, 2, 0}, Shape{"cluster", 4, 2, 2},
                                     Shape{"cluster", 4, 4, 2}, Shape{"cluster", 4, 1, 2}),
                     testing::Values(1, 2)),
    name_of);
INSTANTIATE_TEST_SUITE_P(Larger, Mesh,
                         testing::Combine(testing::Values<size_t>(0, 1, 3),
                                          testing::Values(Shape{"shm", 6, 2, 0},
                                                          Shape{"cluster", 6, 3, 3},
                                                          Shape{"cluster", 8, 2, 4}),
                                          testing::Values(3)),
                         name_of);

}  // namespace
}  // namespace meron::test

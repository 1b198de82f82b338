// SPDX-License-Identifier: Apache-2.0
// Models of which only some trains: units of both kinds of params, and units without any that
// trains. The same bits as one process, and exactly the predicted bytes: what does not change is
// sent again only if it is not kept.
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "tests/distributed/mesh_twin.h"

namespace meron::test {
namespace {

// Keys of a plan. Gradients are f32 in all of them: rounded ones have no twin.
struct Kind {
  const char* name;
  int shards;
  const char* keys;
  const char* gradient;  // keys of that row
  bool local, apart;
  const char* param = "";  // also of the one process

  std::string plan() const { return table(keys, gradient); }
  std::string twin() const { return table(R"("preset": "zero3")", ""); }

 private:
  std::string table(const char* others, const char* row) const {
    return std::string("{") + others + R"(, "gradient": {"dtype": "f32")" + row + "}" + param + "}";
  }
};

constexpr const char* kParts = R"(, "sharding": "replica x shard")";
constexpr const char* kInt8 = R"(, "param": {"frozen": "int8"})";
// The folder that the test runs in is on a drive.
constexpr const char* kNvme =
    R"(, "param": {"tier": "nvme", "buffers": 2, "secondary_partition": "none"}, "nvme": {"path": "."})";
constexpr const char* kInt8AndNvme =
    R"(, "param": {"tier": "nvme", "frozen": "int8"}, "nvme": {"path": "."})";

// 4 ranks, in nodes of 2 if there are nodes.
const Kind kKinds[] = {
    {"mics", 2, R"j("preset": "mics(2)")j", "", false, false},
    {"hpz", 2, R"j("preset": "hpz(2)")j", "", false, true},
    {"hpz_of_1", 1, R"j("preset": "hpz(1)")j", "", false, true},
    {"zero3_by_node", 2, R"j("preset": "hpz(2)", "param": {"secondary_partition": "none"})j", "",
     false, true},
    {"mics_with_optimizer_over_all", 2,
     R"j("preset": "mics(2)", "optimizer": {"sharding": "replica x shard"})j", "", false, false},
    {"mics_of_1_with_optimizer_over_all", 1,
     R"j("preset": "mics(1)", "optimizer": {"sharding": "replica x shard"})j", "", false, false},
    {"rows_with_parts_of_gradients", 2,
     R"j("preset": "mics(2)", "optimizer": {"sharding": "replica x shard"})j", kParts, false, true},
    {"zero1_by_parts", 2, R"j("mesh": {"shard": 2}, "optimizer": {"sharding": "replica x shard"})j",
     "", true, false},
    {"zero2_by_rows", 2, R"j("preset": "mics(2)", "param": {"sharding": "none"})j", "", false,
     false},
    {"mics_int8", 2, R"j("preset": "mics(2)")j", "", false, false, kInt8},
    {"hpz_int8", 2, R"j("preset": "hpz(2)")j", "", false, true, kInt8},
    {"mics_nvme", 2, R"j("preset": "mics(2)")j", "", false, false, kNvme},
    {"zero3_by_node_nvme", 2, R"j("preset": "hpz(2)")j", "", false, true, kNvme},
    {"mics_int8_nvme", 2, R"j("preset": "mics(2)")j", "", false, false, kInt8AndNvme},
};

// Transport, node.
using Place = std::tuple<const char*, int>;
class SomeFrozen : public testing::TestWithParam<std::tuple<size_t, Place, meron_dtype>> {};

TEST_P(SomeFrozen, EqualsOneProcess) {
  const auto& [which, place, dtype] = GetParam();
  const auto& [transport, node] = place;
  const Kind& kind = kKinds[which];
  Config config{.world = {.transport = transport, .ranks = 4},
                .shards = kind.shards,
                .accumulate = 2,
                .dtype = dtype,
                .local = kind.local,
                .apart = kind.apart,
                .frozen = some_frozen};
  config.world.plan = kind.plan();
  config.world.node = node;
  const std::string twin = kind.twin();
  config.twin = twin.c_str();
  expect_twins(config);
}

std::string name_of(const testing::TestParamInfo<SomeFrozen::ParamType>& info) {
  const auto& [which, place, dtype] = info.param;
  return std::string(kKinds[which].name) + "_" + std::get<0>(place) +
         (dtype == MERON_F32 ? "_f32" : "_bf16");
}

INSTANTIATE_TEST_SUITE_P(Plans, SomeFrozen,
                         testing::Combine(testing::Range<size_t>(0, std::size(kKinds)),
                                          testing::Values(Place{"shm", 0}, Place{"sockets", 0},
                                                          Place{"cluster", 2}),
                                          testing::Values(MERON_F32, MERON_BF16)),
                         name_of);

// Without a mesh: on any hosts, all ranks are one shard axis.
class SomeFrozenOfStages : public testing::TestWithParam<std::tuple<const char*, Place>> {};

TEST_P(SomeFrozenOfStages, EqualsOneProcess) {
  const auto& [plan, place] = GetParam();
  const auto& [transport, node] = place;
  Config config{.world = {.transport = transport, .ranks = 4, .plan = plan},
                .shards = 4,
                .accumulate = 1,
                .apart = false,
                .frozen = some_frozen};
  config.world.node = node;
  expect_twins(config);
}

INSTANTIATE_TEST_SUITE_P(Plans, SomeFrozenOfStages,
                         testing::Combine(testing::Values("zero1", "zero2", "zero3"),
                                          testing::Values(Place{"shm", 0}, Place{"sockets", 0},
                                                          Place{"cluster", 2})),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) + "_" +
                                  std::get<0>(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace meron::test

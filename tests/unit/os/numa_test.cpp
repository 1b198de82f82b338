// SPDX-License-Identifier: Apache-2.0
#include "os/numa.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "os/process.h"

namespace meron {
namespace {

using Cpus = std::vector<int>;

TEST(Numa, ReadsCpuListsAsLinuxWritesThem) {
  EXPECT_EQ(*parse_cpu_list("0-3,8,10-11\n"), (Cpus{0, 1, 2, 3, 8, 10, 11}));
  EXPECT_EQ(*parse_cpu_list("\n"), Cpus{});
  EXPECT_EQ(*parse_cpu_list("7"), Cpus{7});
  for (const char* text : {"a", "1-", "-1", "3-1", "1,,2", "1;2", "0-99999999", "1 2"}) {
    const auto read = parse_cpu_list(text);
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_EQ(read.error().code(), MERON_E_PARSE);
  }
}

TEST(Numa, NodesHaveTheCpusThatTheProcessMayUse) {
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / fmt::format("meron-numa-{}", process_id());
  const Cpus allowed = allowed_cpus();
  const auto node = [&](const char* name, const std::string& list) {
    std::filesystem::create_directories(folder / name);
    std::ofstream(folder / name / "cpulist") << list << '\n';
  };
  node("node0", fmt::format("{}", allowed.front()));
  node("node10", fmt::format("{}-{}", allowed.back(), allowed.back() + 5));
  node("node2", "");  // memory without CPUs
  node("power", "0");
  EXPECT_EQ(numa_nodes(folder.string()), (std::vector<Cpus>{{allowed.front()}, {allowed.back()}}));
  std::filesystem::remove_all(folder);
  EXPECT_TRUE(numa_nodes(folder.string()).empty());
}

TEST(Numa, RanksAreDealtInBlocks) {
  const std::vector<Cpus> nodes = {{0, 1}, {2, 3}};
  EXPECT_EQ(near_cpus(nodes, 0, 2), nodes[0]);
  EXPECT_EQ(near_cpus(nodes, 1, 2), nodes[1]);
  EXPECT_EQ(near_cpus(nodes, 1, 4), nodes[0]);
  EXPECT_EQ(near_cpus(nodes, 2, 4), nodes[1]);
  // One rank has all nodes; three do not divide; one node is no choice.
  EXPECT_EQ(near_cpus(nodes, 0, 1), Cpus{});
  EXPECT_EQ(near_cpus(nodes, 0, 3), Cpus{});
  EXPECT_EQ(near_cpus({{0, 1}}, 0, 2), Cpus{});
  EXPECT_EQ(near_cpus({}, 0, 2), Cpus{});
}

TEST(Numa, AThreadRunsOnTheGivenCpus) {
  const int last = allowed_cpus().back();
  std::thread([&] {
    ASSERT_TRUE(pin_thread_to({last}).ok());
    EXPECT_EQ(::sched_getcpu(), last);
    EXPECT_FALSE(pin_thread_to({}).ok());
  }).join();
}

}  // namespace
}  // namespace meron

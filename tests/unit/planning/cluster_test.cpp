// SPDX-License-Identifier: Apache-2.0
#include "tools/meron/planning/cluster.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/unit/plan/expect_error.h"

namespace meron::planning {
namespace {

constexpr const char* kWhole = R"({
  "name": "rack",
  "nodes": 4, "devices_per_node": 2,
  "between_nodes": { "rate": "100 Gb/s", "latency": "5 us" },
  "inside_node": { "rate": "50 GB/s", "latency": "0 s", "in_place": true },
  "device": { "memory": "80 GiB", "reserved": "8 GiB", "memory_rate": "3 TB/s",
              "flops": "400 TFLOP/s" },
  "nvme": { "read": "20 GB/s", "write": "10 GB/s" },
  "pcie": { "read": "55 GB/s", "write": "50 GB/s" }
})";

constexpr double kGiB = 1 << 30;

TEST(ClusterJson, EveryKey) {
  const Result<Cluster> got = parse_cluster(kWhole);
  ASSERT_TRUE(got.ok()) << got.error().info().what;
  EXPECT_EQ(*got, (Cluster{.name = "rack",
                           .nodes = 4,
                           .devices_per_node = 2,
                           .between = {12.5e9, 5 * 1e-6},
                           .inside = {50e9, 0},
                           .in_place = true,
                           .memory = 80 * kGiB,
                           .reserved = 8 * kGiB,
                           .memory_rate = 3e12,
                           .flops = 4e14,
                           .nvme = TierSpeed{20e9, 10e9},
                           .pcie = TierSpeed{55e9, 50e9}}));
  EXPECT_EQ(got->devices(), 8u);
}

TEST(ClusterJson, WhatMayBeLeftOut) {
  const Result<Cluster> one = parse_cluster(
      R"({"nodes": 1, "devices_per_node": 1, "device": {"memory": "1 GB", "memory_rate": "1 GB/s"}})");
  ASSERT_TRUE(one.ok()) << one.error().info().what;
  EXPECT_EQ(one->name, "1 x 1");
  EXPECT_EQ(one->between, LinkSpeed());
  EXPECT_EQ(one->reserved, 0);
  EXPECT_FALSE(one->nvme || one->pcie);
}

TEST(ClusterJson, SurvivesTheWayToJsonAndBack) {
  const Cluster whole = *parse_cluster(kWhole);
  for (const int indent : {-1, 2}) EXPECT_EQ(*parse_cluster(to_json(whole, indent)), whole);
}

std::string changed(std::string_view from, std::string_view to) {
  std::string text = kWhole;
  return text.replace(text.find(from), from.size(), to);
}

TEST(ClusterJson, ErrorsNameLineAndKey) {
  struct Bad {
    std::string text;
    const char* what;
    const char* advice;
  };
  for (const Bad& bad : {
           Bad{"{", "malformed JSON", ""},
           {changed("\"nodes\": 4", "\"node\": 4"), "line 3, key \"node\": unknown key",
            "did you mean \"nodes\"?"},
           {changed("\"nodes\": 4, ", ""), "the key \"nodes\" is missing", "add"},
           {changed("\"nodes\": 4", "\"nodes\": 0"), "line 3, key \"nodes\": must be", ""},
           {changed("\"nodes\": 4", "\"nodes\": 65536"),
            "65536 nodes of 2 are 131072 devices, more than the limit of 65536", "check"},
           {changed("\"100 Gb/s\"", "100"),
            "line 4, key \"between_nodes.rate\": must be a string, not a number", ""},
           {changed("\"100 Gb/s\"", "\"100 Gb\""),
            "line 4, key \"between_nodes.rate\": \"Gb\" is not a unit of a rate", "\"Gb/s\""},
           {changed("\"100 Gb/s\"", "\"0 Gb/s\""), "\"0 Gb/s\" is too little", "give"},
           {changed("\"100 Gb/s\"", "\"1e-9 Gb/s\""), "is too little", "give"},
           {changed(", \"latency\": \"5 us\"", ""), "the key \"latency\" is missing", "add"},
           {changed("true", "1"), "line 5, key \"inside_node.in_place\": must be true or false",
            ""},
           {changed("\"inside_node\"", "\"nvme\""), "", ""},
           {changed("\"between_nodes\"", "\"between\""), "key \"between\": unknown key",
            "between_nodes"},
           {changed("\"8 GiB\"", "\"80 GiB\""),
            "line 6, key \"device.reserved\": no memory is left", "reserve less"},
           {changed("\"3 TB/s\"", "\"3 TB\""), "key \"device.memory_rate\": \"TB\" is not a unit",
            ""},
           {changed("\"20 GB/s\"", "\"fast\""), "line 8, key \"nvme.read\": \"fast\" is not a rate",
            "100 Gb/s"},
           {changed("\"rack\"", "\"\""), "line 2, key \"name\": the name is empty", ""},
       }) {
    SCOPED_TRACE(bad.text);
    const Result<Cluster> got = parse_cluster(bad.text);
    expect_error(got, MERON_E_PARSE, bad.what, bad.advice);
    if (!got) {
      EXPECT_EQ(got.error().info().subject, "cluster");
    }
  }
}

TEST(ClusterJson, LinksAreWantedWhereThereAreSome) {
  constexpr const char* kDevice = R"("device": {"memory": "1 GB", "memory_rate": "1 GB/s"}})";
  expect_error(parse_cluster(std::string(R"({"nodes": 2, "devices_per_node": 1, )") + kDevice),
               MERON_E_PARSE, "the key \"between_nodes\" is missing");
  expect_error(parse_cluster(std::string(R"({"nodes": 1, "devices_per_node": 2, )") + kDevice),
               MERON_E_PARSE, "the key \"inside_node\" is missing");
}

}  // namespace
}  // namespace meron::planning

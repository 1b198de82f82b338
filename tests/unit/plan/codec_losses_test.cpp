// SPDX-License-Identifier: Apache-2.0
#include "plan/codec_losses.h"

#include <gtest/gtest.h>

#include "plan/plan_json.h"

namespace meron {
namespace {

std::vector<std::string> losses_of(const char* json) {
  auto plan = parse_plan(json);
  if (!plan.ok()) {
    ADD_FAILURE() << json;
    return {};
  }
  return codec_losses(*plan);
}

TEST(CodecLosses, PresetsHaveNone) {
  for (const char* name : {"zero0", "zero3", "mics(2)", "hpz(2)", "zeropp(2)"}) {
    EXPECT_TRUE(codec_losses(*preset(name)).empty()) << name;
  }
}

TEST(CodecLosses, Int4GradientsNeedOneWayToMakeUpForRounding) {
  EXPECT_EQ(losses_of(R"j({"preset": "mics(2)", "gradient": {"codec": "int4"}})j").size(), 1u);
  for (const char* way :
       {R"("rounding": "stochastic")", R"("hadamard": true)", R"("feedback": true)"}) {
    const std::string json = R"j({"preset": "mics(2)", "gradient": {"codec": {"kind": "int4", )j" +
                             std::string(way) + "}}}";
    EXPECT_TRUE(losses_of(json.c_str()).empty()) << way;
  }
}

TEST(CodecLosses, Int4ParametersNeedDifferences) {
  const auto losses = losses_of(R"j({"preset": "hpz(2)", "param": {"codec": "int4"}})j");
  ASSERT_EQ(losses.size(), 1u);
  EXPECT_NE(losses[0].find(R"("difference": true)"), std::string::npos) << losses[0];
  EXPECT_TRUE(losses_of(R"j({"preset": "hpz(2)",
                             "param": {"codec": {"kind": "int4", "difference": true}}})j")
                  .empty());
}

// On a device there are no differences.
TEST(CodecLosses, TheAdviceFitsTheTier) {
  const auto losses = losses_of(R"j({"preset": "hpz(2)",
      "param": {"tier": "device", "secondary_partition": "none", "codec": "int4"}})j");
  ASSERT_EQ(losses.size(), 1u);
  EXPECT_EQ(losses[0].find("\"difference\": true"), std::string::npos) << losses[0];
  EXPECT_NE(losses[0].find("int8"), std::string::npos) << losses[0];
}

}  // namespace
}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
#include "plan/json_out.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

namespace meron {
namespace {

using Json = nlohmann::ordered_json;

// The text is what nlohmann's tree prints, in which programs have read it so far.
TEST(JsonOut, PrintsAsATreeDoes) {
  const std::string odd = "a \"quote\", a \\, {[:,]}, a line\nbreak, ä and \x01";
  const JsonOut ours = JsonOut::object(
      {{"text", odd},
       {odd, JsonOut::array({1, -2, uint64_t{18446744073709551615U}, 0.1, 1.0, 1e300, -0.0, true})},
       {"empty", JsonOut::object()},
       {"none", JsonOut::array()},
       {"nested", JsonOut::object({{"a", JsonOut::array({JsonOut::array({JsonOut::object()})})}})},
       {"yes", true},
       {"no", false}});
  Json theirs;
  theirs["text"] = odd;
  theirs[odd] = {1, -2, uint64_t{18446744073709551615U}, 0.1, 1.0, 1e300, -0.0, true};
  theirs["empty"] = Json::object();
  theirs["none"] = Json::array();
  theirs["nested"]["a"] = Json::array({Json::array({Json::object()})});
  theirs["yes"] = true;
  theirs["no"] = false;
  for (const int indent : {-1, 0, 2, 4})
    EXPECT_EQ(ours.dump(indent), theirs.dump(indent)) << indent;
}

TEST(JsonOut, AddsMembersAndElementsInOrder) {
  JsonOut out = JsonOut::object({{"a", 1}});
  out.add("b", 2).add_members(JsonOut::object()).add_members(JsonOut::object({{"c", 3}, {"d", 4}}));
  EXPECT_EQ(out.dump(-1), R"({"a":1,"b":2,"c":3,"d":4})");
  EXPECT_EQ(JsonOut::array().push("x").push(out).dump(-1), R"(["x",{"a":1,"b":2,"c":3,"d":4}])");
  EXPECT_EQ(JsonOut::object({{"x", JsonOut::of_text("[1]")}}).dump(-1), R"({"x":[1]})");
}

TEST(JsonOut, ReplacesBytesThatAreNotUtf8) {
  EXPECT_EQ(JsonOut("a\xff").dump(-1), "\"a\xef\xbf\xbd\"");
}

TEST(JsonOut, ANumberThatJsonLacksIsNull) {
  EXPECT_EQ(JsonOut(std::numeric_limits<double>::quiet_NaN()).dump(-1), "null");
}

}  // namespace
}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
// The step itself is held to the last bit by the twin tests in tests/distributed.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "optim/optimizer.h"

namespace meron {
namespace {

TEST(AdamWOptionsTest, DefaultsAreValid) {
  EXPECT_TRUE(validate(AdamWOptions{}).ok());
}

TEST(AdamWOptionsTest, NamesTheValueThatIsOutOfRange) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  const struct {
    double AdamWOptions::*field;
    const char* name;
    std::vector<double> bad;
  } fields[] = {{&AdamWOptions::learning_rate, "learning_rate", {-1.0, nan, infinity}},
                {&AdamWOptions::beta1, "beta1", {-0.1, 1.0, nan}},
                {&AdamWOptions::beta2, "beta2", {-0.1, 1.0, nan}},
                {&AdamWOptions::epsilon, "epsilon", {0.0, -1.0, nan, infinity}},
                {&AdamWOptions::weight_decay, "weight_decay", {-1.0, nan, infinity}},
                {&AdamWOptions::max_norm, "max_norm", {-1.0, nan, infinity}}};
  for (const auto& field : fields) {
    for (const double value : field.bad) {
      AdamWOptions options;
      options.*field.field = value;
      const Status status = validate(options);
      ASSERT_FALSE(status.ok()) << field.name << " = " << value;
      EXPECT_EQ(MERON_E_ARGUMENT, status.error().code());
      EXPECT_EQ(field.name, status.error().info().subject);
    }
  }
}

}  // namespace
}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gmock/gmock.h>

#include <string_view>

#include "base/result.h"

namespace meron {

// An error of this code whose message contains `what` and that carries its subject and, where
// `advice` is given, that advice. Every error of the plan must say what to do.
template <class T>
void expect_error(const Result<T>& result, meron_status code, std::string_view what,
                  std::string_view advice = {}) {
  ASSERT_FALSE(result.ok()) << "expected: " << what;
  const ErrorInfo& info = result.error().info();
  EXPECT_EQ(info.code, code) << info.what;
  EXPECT_THAT(info.what, testing::HasSubstr(std::string(what)));
  EXPECT_THAT(info.advice, testing::HasSubstr(std::string(advice)));
  EXPECT_FALSE(info.advice.empty()) << info.what;
}

}  // namespace meron

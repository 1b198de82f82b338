// SPDX-License-Identifier: Apache-2.0
// A small manifest that is right, and errors as every parser must give them.
#pragma once

#include <gmock/gmock.h>

#include <string>
#include <string_view>

#include "base/result.h"
#include "checkpoint/manifest.h"

namespace meron::checkpoint {

// Two ranks on two nodes: a replicated count, a tensor of both files, an empty one.
inline Manifest some_manifest() {
  Manifest m;
  m.id = "0123456789abcdef0123456789abcdef";
  m.name = "step-000012";
  m.step = 12;
  m.origin.created = "2026-11-25T08:00:00Z";
  m.origin.writer = "meron 0.1.0";
  m.origin.world = 2;
  m.origin.nodes = 2;
  m.origin.plan = R"({"name":"zero2"})";
  m.extra = R"({"epoch":-3,"note":"a b"})";
  m.files = {{"values-00000-of-00002.safetensors", 0, 0, 4096 + 32, {0xDEADBEEF}},
             {"values-00001-of-00002.safetensors", 1, 1, 4096 + 24, {0x00000001}}};
  m.tensors = {{"h.0.w", "values", "BF16", {4, 5}, {{0, 0, 12, 4096}, {1, 12, 8, 4096}}},
               {"h.0.b", "exp_avg", "F32", {2}, {{0, 0, 2, 4120}}},
               {"rng", "extra.1", "I64", {}, {{1, 0, 1, 4112}}},
               {"nothing", "values", "F32", {0, 3}, {}}};
  m.optimizers = {{"adamw", 12, {{0.001, 0.9, 0.999, 1e-08, 0.1}, {}}}};
  return m;
}

inline std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, text.npos) << from;
  return at == text.npos ? text : text.replace(at, from.size(), to);
}

template <class T>
void expect_refused(const Result<T>& result, meron_status code, std::string_view what) {
  ASSERT_FALSE(result.ok()) << "expected: " << what;
  const ErrorInfo& info = result.error().info();
  EXPECT_EQ(info.code, code) << info.what;
  EXPECT_THAT(info.what, testing::HasSubstr(std::string(what)));
  EXPECT_FALSE(info.advice.empty()) << info.what;
  EXPECT_FALSE(info.subject.empty()) << info.what;
}

}  // namespace meron::checkpoint

// SPDX-License-Identifier: Apache-2.0
// What must hold for every input of the parsers.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "base/result.h"
#include "plan/predict.h"
#include "plan/text.h"

namespace meron {

inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

template <class T>
void require_good_message(const Result<T>& result) {
  const ErrorInfo& info = result.error().info();
  require(!info.what.empty() && !info.advice.empty(), "an error says what, and what to do");
  require(valid_utf8(info.what) && valid_utf8(info.advice) && valid_utf8(info.subject),
          "an error is valid UTF-8");
  require(info.what.size() < 1500 && info.advice.size() < 1500, "an error is short");
}

template <class T>
void require_good_error(const Result<T>& result) {
  const meron_status code = result.error().code();
  require(code < 0 && code > -200, "a bad text is an error of the call alone");
  require_good_message(result);
}

inline void require_predictable(const ModelDesc& model) {
  for (const std::string_view name : kPresetNames) {
    const Result<Prediction> got = predict(*preset(name), model, {.ranks = 3, .micro_batches = 2});
    if (!got) {
      require_good_error(got);
      continue;
    }
    uint64_t memory = 0;
    for (const RankPrediction& rank : got->ranks) memory += rank.memory.total();
    require(memory == got->total.memory.total(), "the ranks' bytes add up to the total");
    require(!to_table(*got).empty(), "a prediction can be printed");
  }
}

}  // namespace meron

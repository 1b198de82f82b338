// SPDX-License-Identifier: Apache-2.0
// Models of one flat, and what a preset costs them.
#pragma once

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "plan/predict.h"

namespace meron {

inline ModelDesc one_flat(uint64_t elements, DType dtype = DType::f32, bool trainable = true) {
  return {{{"unit", {{dtype, elements, trainable}}}}};
}

inline std::vector<RankPrediction> ranks_of(std::string_view plan, const ModelDesc& model,
                                            Workload load) {
  const Result<Prediction> prediction = predict(*preset(plan), model, load);
  EXPECT_TRUE(prediction.ok());
  return prediction ? prediction->ranks : std::vector<RankPrediction>{};
}

}  // namespace meron

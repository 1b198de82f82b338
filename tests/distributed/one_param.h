// SPDX-License-Identifier: Apache-2.0
// The smallest model, for tests that look at single values.
#pragma once

#include <cstdio>
#include <vector>

#include "tests/distributed/ranks.h"

namespace meron::test {

// One unit of one f32 param of `count` elements. Each of two ranks owns half of them.
struct OneParam {
  meron_param param{};
  meron_unit unit{};

  OneParam(meron_context context, int64_t count, bool frozen = false, const char* name = "p",
           const char* unit_name = "u") {
    meron_param_desc desc = MERON_PARAM_DESC_INIT;
    desc.name = name;
    desc.shape = &count;
    desc.dims = 1;
    desc.dtype = MERON_F32;
    desc.frozen = frozen ? 1 : 0;
    CALL(meron_param_register, &param, context, &desc);
    CALL(meron_unit_create, &unit, context, unit_name, &param, 1);
  }
  void write(const std::vector<float>& values) const {
    meron_future update{};
    CALL(meron_update_begin, &update, &unit, 1);
    CALL(meron_future_wait, update, MERON_TIMEOUT_DEFAULT);
    CALL(meron_update_write, update, param, values.data(), values.size(), MERON_F32);
    CALL(meron_update_publish, update);
  }
  std::vector<float> gather() const {
    meron_future gather{};
    CALL(meron_gather_begin, &gather, &unit, 1, nullptr);
    CALL(meron_future_wait, gather, MERON_TIMEOUT_DEFAULT);
    meron_view view{};
    CALL(meron_gather_view, &view, gather, param);
    const auto* data = static_cast<const float*>(view.data);
    std::vector<float> values(data, data + view.count);
    CALL(meron_future_release, gather);
    return values;
  }
  // One step of `optimizer` with the same full gradient on each rank.
  void reduce_and_step(meron_optimizer optimizer, const std::vector<float>& gradient) const {
    const meron_source source{param, gradient.data(), gradient.size(), MERON_F32, 0};
    CALL(meron_reduce_begin, nullptr, unit, &source, 1, nullptr);
    CALL(meron_reduce_wait, &unit, 1, MERON_TIMEOUT_DEFAULT);
    meron_future step{};
    CALL(meron_optimizer_step_begin, &step, optimizer);
    finish(step);
  }
  meron_unit_info info() const {
    meron_unit_info info{};
    info.struct_size = sizeof(info);
    CALL(meron_unit_get_info, &info, unit);
    return info;
  }
};

inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::fflush(stderr);
  _exit(4);
}

}  // namespace meron::test

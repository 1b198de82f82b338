// SPDX-License-Identifier: Apache-2.0
// A trainer of the tiny model, for tests that compare ranks with one process that does the same,
// and counted bytes with predicted ones.
#pragma once

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/distributed/ranks.h"
#include "tests/distributed/tiny_model.h"

namespace meron::test {

inline constexpr size_t kParams = 7;

inline size_t weight_count() {
  size_t count = 0;
  for (const TinyUnit& unit : tiny_units()) {
    for (const TinyParam& param : unit.params) count += param.count();
  }
  return count;
}

// True for the params of the tiny model that do not train.
using Frozen = bool (*)(const std::string& param);
inline bool none_frozen(const std::string&) {
  return false;
}
// One unit trains in part, one does not train, and one trains for the most part.
inline bool some_frozen(const std::string& param) {
  return param == "in.weight" || param.rfind("middle.", 0) == 0 || param == "out.bias";
}

struct Trainer {
  meron_context context;
  std::vector<meron_param> params;
  std::vector<meron_unit> units;
  std::vector<TinyParam> descs;
  std::vector<size_t> unit_of;
  std::vector<bool> frozen;         // params
  std::vector<meron_unit> trained;  // units
  meron_optimizer optimizer{};

  Trainer(meron_context context_in, meron_dtype dtype, bool late_optimizer = false,
          meron_group group = {}, Frozen is_frozen = none_frozen)
      : context(context_in) {
    for (const TinyUnit& unit : tiny_units()) {
      std::vector<meron_param> members;
      bool trains = false;
      for (const TinyParam& desc : unit.params) {
        meron_param_desc given = MERON_PARAM_DESC_INIT;
        given.name = desc.name.c_str();
        given.shape = desc.shape.data();
        given.dims = static_cast<uint32_t>(desc.shape.size());
        given.dtype = dtype;
        given.group = group;
        frozen.push_back(is_frozen(desc.name));
        given.frozen = frozen.back() ? 1 : 0;
        trains = trains || !frozen.back();
        meron_param param{};
        CALL(meron_param_register, &param, context, &given);
        members.push_back(param);
        params.push_back(param);
        descs.push_back(desc);
        unit_of.push_back(units.size());
      }
      meron_unit made{};
      CALL(meron_unit_create, &made, context, unit.name.c_str(), members.data(), members.size());
      units.push_back(made);
      if (trains) trained.push_back(made);
    }
    meron_future update{};
    CALL(meron_update_begin, &update, units.data(), units.size());
    CALL(meron_future_wait, update, MERON_TIMEOUT_DEFAULT);
    for (size_t i = 0; i < params.size(); ++i) {
      const std::vector<float> values = initial_values(descs[i]);
      CALL(meron_update_write, update, params[i], values.data(), values.size(), MERON_F32);
    }
    CALL(meron_update_publish, update);
    if (!late_optimizer) make_optimizer();
  }

  void make_optimizer() {
    meron_optimizer_options options = MERON_OPTIMIZER_OPTIONS_INIT;
    options.learning_rate = 0.01;
    options.max_norm = 0.25;
    CALL(meron_optimizer_create, &optimizer, trained.data(), trained.size(), &options);
  }

  // Loss of one micro-batch at the present weights; gradients are added to `sums`.
  float micro_batch(uint64_t index, std::vector<std::vector<float>>& sums) {
    // Twice, as a forward and a backward would.
    float loss = 0.0f;
    for (int pass = 0; pass < 2; ++pass) {
      std::vector<meron_future> gathers;
      for (const meron_unit unit : units) {
        meron_future gather{};
        CALL(meron_gather_begin, &gather, &unit, 1, nullptr);
        CALL(meron_future_wait, gather, MERON_TIMEOUT_DEFAULT);
        gathers.push_back(gather);
      }
      if (pass == 1) {
        std::array<const float*, kParams> values{};
        std::array<float*, kParams> gradients{};
        std::vector<std::vector<float>> converted(kParams);
        for (size_t i = 0; i < kParams; ++i) {
          meron_view view{};
          CALL(meron_gather_view, &view, gathers[unit_of[i]], params[i]);
          converted[i] = to_f32(view);
          values[i] = converted[i].data();
          gradients[i] = sums[i].data();
        }
        loss = tiny_step(index, values, gradients);
      }
      for (const meron_future gather : gathers) CALL(meron_future_release, gather);
    }
    return loss;
  }

  static std::vector<float> to_f32(const meron_view& view) {
    std::vector<float> values(view.count + 1);  // never empty: data() is not null
    if (view.dtype == MERON_F32) {
      std::memcpy(values.data(), view.data, view.count * sizeof(float));
      return values;
    }
    const auto* bits = static_cast<const uint16_t*>(view.data);
    for (size_t i = 0; i < view.count; ++i) {
      const uint32_t wide = static_cast<uint32_t>(bits[i]) << 16;
      std::memcpy(&values[i], &wide, sizeof(float));
    }
    return values;
  }

  std::vector<std::vector<float>> zeros() const {
    std::vector<std::vector<float>> all;
    for (const TinyParam& desc : descs) all.emplace_back(desc.count() + 1, 0.0f);
    return all;
  }

  void reduce(const std::vector<std::vector<float>>& gradients, const meron_reduce_options& options,
              bool staged) {
    std::vector<meron_future> futures;
    for (size_t u = trained.size(); u-- > 0;) {
      std::vector<meron_source> sources;
      for (size_t i = 0; i < params.size(); ++i) {
        if (units[unit_of[i]].id != trained[u].id || frozen[i]) continue;
        if (staged) {
          sources.push_back({params[i], gradients[i].data(), descs[i].count(), MERON_F32, 0});
          continue;
        }
        meron_view view{};
        CALL(meron_gradient_view, &view, params[i], 0);
        auto* to = static_cast<float*>(view.data);
        for (size_t k = 0; k < view.count; ++k) to[k] += gradients[i][k];
      }
      meron_future future{};
      CALL(meron_reduce_begin, &future, trained[u], staged ? sources.data() : nullptr,
           sources.size(), &options);
      futures.push_back(future);
    }
    for (const meron_future future : futures) finish(future);
  }

  void end_accumulation(const meron_reduce_options& options) {
    std::vector<meron_future> futures(trained.size());
    for (size_t u = 0; u < trained.size(); ++u) {
      CALL(meron_reduce_finish_begin, &futures[u], trained[u], &options);
    }
    for (const meron_future future : futures) finish(future);
  }

  void step() {
    if (optimizer.id == 0) make_optimizer();
    meron_future future{};
    CALL(meron_optimizer_step_begin, &future, optimizer);
    finish(future);
  }

  void weights(float* out) {
    for (size_t i = 0; i < params.size(); ++i) {
      meron_gather_options options = MERON_GATHER_OPTIONS_INIT;
      options.mode = MERON_GATHER_COPY;
      meron_future gather{};
      CALL(meron_gather_begin, &gather, &units[unit_of[i]], 1, &options);
      CALL(meron_future_wait, gather, MERON_TIMEOUT_DEFAULT);
      meron_view view{};
      CALL(meron_gather_view, &view, gather, params[i]);
      const std::vector<float> values = to_f32(view);
      std::memcpy(out, values.data(), view.count * sizeof(float));
      out += view.count;
      CALL(meron_future_release, gather);
    }
  }
};

inline meron_stats stats_of(meron_context context) {
  meron_stats stats{};
  stats.struct_size = sizeof(stats);
  CALL(meron_context_stats, &stats, context);
  return stats;
}

}  // namespace meron::test

// SPDX-License-Identifier: Apache-2.0
// A model whose every state follows from a step: saved by the ranks of one world, and compared
// element by element by those of another.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "tests/fault/job.h"

namespace meron::test {

// The model that is saved in one folder.
struct SavedModel {
  bool large = false;  // its files have several blocks
  bool bf16 = false;   // values in 16 bits with f32 masters; else in f32
};

// A session with that model, whose optimizer never steps: its states are written.
class SteppedSession : public Session {
 public:
  SteppedSession(const Open& open, int rank_in, const SavedModel& model) : Session(open, rank_in) {
    const meron_dtype dtype = model.bf16 ? MERON_BF16 : MERON_F32;
    for (int u = 0; u < kUnits; ++u) {
      const std::string name = "u" + std::to_string(u);
      const int64_t rows = model.large && u == 0 ? 30'011 : 37;
      make_unit(name,
                {add(name + ".weight", {rows, 13 + u}, dtype), add(name + ".bias", {5}, dtype)});
    }
    make_optimizer();
  }

  // All states of `step`.
  void fill(uint64_t step) {
    meron_future update{};
    MUST(meron_update_begin, &update, units.data(), units.size());
    MUST(meron_future_wait, update, MERON_TIMEOUT_DEFAULT);
    for (size_t p = 0; p < params.size(); ++p) {
      const std::vector<float> values = contents(step, p, 0, 0, sizes_[p]);
      MUST(meron_update_write, update, params[p], values.data(), values.size(), MERON_F32);
    }
    MUST(meron_update_publish, update);
    for (size_t p = 0; p < params.size(); ++p) {
      const meron_param_info owned = info(p);
      for (const meron_optimizer_state state :
           {MERON_OPTIMIZER_STATE_EXP_AVG, MERON_OPTIMIZER_STATE_EXP_AVG_SQ}) {
        const auto part = contents(step, p, state, owned.shard_offset, owned.shard_count);
        MUST(meron_optimizer_write_state, optimizer, params[p], state, part.data(),
             owned.shard_count);
      }
    }
    MUST(meron_optimizer_set_steps, optimizer, 10 * step);
    meron_optimizer_group group = MERON_OPTIMIZER_GROUP_INIT;
    group.learning_rate = rate_of(step);
    MUST(meron_optimizer_set_group, optimizer, 0, &group);
  }

  void save(const std::string& folder, const std::string& name, uint64_t step, uint64_t keep = 0,
            bool overwrite = false) {
    wait_for_save(begin_save(folder, name, step, keep, overwrite));
  }

  // The same, and this rank cancels it if `cancels`. False if it was cancelled, by any rank.
  bool save_unless_cancelled(const std::string& folder, const std::string& name, uint64_t step,
                             uint64_t keep, bool overwrite, bool cancels) {
    const meron_future save = begin_save(folder, name, step, keep, overwrite);
    if (cancels) MUST(meron_checkpoint_cancel_save, context);
    try {
      wait_for_save(save);
      return true;
    } catch (const CallFailed& failed) {
      if (failed.status != MERON_E_CANCELLED) throw;
      return false;
    }
  }

  // Its step. Empty name: the newest complete one.
  uint64_t load(const std::string& folder, const std::string& name = "") {
    meron_checkpoint_load_options options = MERON_CHECKPOINT_LOAD_OPTIONS_INIT;
    options.optimizers = &optimizer;
    options.optimizer_count = 1;
    meron_checkpoint loaded{};
    MUST(meron_checkpoint_load, &loaded, context, folder.c_str(),
         name.empty() ? nullptr : name.c_str(), &options);
    meron_checkpoint_info about{};
    about.struct_size = sizeof about;
    MUST(meron_checkpoint_get_info, &about, loaded);
    const char* text = nullptr;
    MUST(meron_checkpoint_text, &text, loaded, MERON_CHECKPOINT_TEXT_EXTRA);
    extra_ = text;
    MUST(meron_checkpoint_release, loaded);
    return about.step;
  }

  // Names the loaded state that differs from fill(step). Empty if none does.
  std::string difference(uint64_t step) {
    if (extra_ != extra_of(step)) return "extra: " + extra_;
    meron_optimizer_info about{};
    about.struct_size = sizeof about;
    MUST(meron_optimizer_get_info, &about, optimizer);
    if (about.steps != 10 * step) return "the optimizer's count of steps";
    meron_optimizer_group group = MERON_OPTIMIZER_GROUP_INIT;
    MUST(meron_optimizer_get_group, &group, optimizer, 0u);
    meron_optimizer_group expected = MERON_OPTIMIZER_GROUP_INIT;
    expected.learning_rate = rate_of(step);
    if (std::memcmp(&group, &expected, sizeof group) != 0) return "the optimizer's numbers";
    for (size_t p = 0; p < params.size(); ++p) {
      const meron_param_info owned = info(p);
      std::vector<float> part(owned.shard_count + 1);
      for (const meron_optimizer_state state :
           {MERON_OPTIMIZER_STATE_MASTER, MERON_OPTIMIZER_STATE_EXP_AVG,
            MERON_OPTIMIZER_STATE_EXP_AVG_SQ}) {
        MUST(meron_optimizer_read_state, part.data(), owned.shard_count, optimizer, params[p],
             state);
        const auto right = contents(step, p, state, owned.shard_offset, owned.shard_count);
        if (std::memcmp(part.data(), right.data(), owned.shard_count * sizeof(float)) != 0) {
          return "state " + std::to_string(state) + " of " + names_[p];
        }
      }
    }
    for (size_t u = 0; u < units.size(); ++u) {
      const std::string wrong = values_difference(step, u);
      if (!wrong.empty()) return wrong;
    }
    return "";
  }

 private:
  meron_future begin_save(const std::string& folder, const std::string& name, uint64_t step,
                          uint64_t keep, bool overwrite) {
    const std::string extra = extra_of(step);
    meron_checkpoint_save_options options = MERON_CHECKPOINT_SAVE_OPTIONS_INIT;
    options.step = step;
    options.keep = keep;
    options.overwrite = overwrite ? 1 : 0;
    options.extra = extra.c_str();
    options.optimizers = &optimizer;
    options.optimizer_count = 1;
    meron_future future{};
    MUST(meron_checkpoint_save_begin, &future, context, folder.c_str(), name.c_str(), &options);
    return future;
  }
  void wait_for_save(meron_future save) {
    try {
      wait(save);
    } catch (const CallFailed&) {
      (void)meron_future_release(save, nullptr);
      throw;
    }
  }
  static constexpr int kUnits = 2;

  meron_param add(const std::string& name, const std::vector<int64_t>& shape, meron_dtype dtype) {
    uint64_t elements = 1;
    for (const int64_t size : shape) elements *= static_cast<uint64_t>(size);
    sizes_.push_back(elements);
    names_.push_back(name);
    return register_param(name, shape, dtype);
  }
  meron_param_info info(size_t p) const {
    meron_param_info info{};
    info.struct_size = sizeof info;
    MUST(meron_param_get_info, &info, params[p]);
    return info;
  }
  static double rate_of(uint64_t step) { return 1e-3 + 1e-6 * static_cast<double>(step % 1000); }
  static std::string extra_of(uint64_t step) {
    return R"({"epoch":)" + std::to_string(step) + R"(,"order":[3,1,2],"note":"as it was saved"})";
  }

  // Elements [first, first + count) of a state; "state" 0 is the values and masters.
  static std::vector<float> contents(uint64_t step, size_t param, int state, uint64_t first,
                                     uint64_t count) {
    std::vector<float> out(count + 1);  // never empty: data() is not null
    out.resize(count);
    uint64_t seed = (step * 64 + param) * 4 + static_cast<uint64_t>(state);
    seed = (seed + 1) * 0x9e3779b97f4a7c15ull;
    for (uint64_t i = 0; i < count; ++i) {
      uint64_t x = seed ^ ((first + i) * 0xd1342543de82ef95ull);
      x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9ull;
      out[i] = static_cast<float>(static_cast<int32_t>(x >> 40)) * 0x1p-24f + 0x1p-30f;
    }
    return out;
  }
  static uint16_t rounded(float value) {
    const auto bits = std::bit_cast<uint32_t>(value);
    return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
  }

  std::string values_difference(uint64_t step, size_t u) {
    std::string wrong;
    meron_future gather{};
    MUST(meron_gather_begin, &gather, &units[u], 1, nullptr);
    MUST(meron_future_wait, gather, MERON_TIMEOUT_DEFAULT);
    for (size_t p = 2 * u; p < 2 * u + 2; ++p) {
      meron_view view{};
      MUST(meron_gather_view, &view, gather, params[p]);
      const auto right = contents(step, p, 0, 0, sizes_[p]);
      bool same = view.count == sizes_[p];
      for (uint64_t i = 0; same && i < view.count; ++i) {
        same = view.dtype == MERON_F32
                   ? static_cast<const float*>(view.data)[i] == right[i]
                   : static_cast<const uint16_t*>(view.data)[i] == rounded(right[i]);
      }
      if (!same) wrong = "values of " + names_[p];
    }
    MUST(meron_future_release, gather);
    return wrong;
  }

  std::vector<uint64_t> sizes_;  // elements, by param
  std::vector<std::string> names_;
  std::string extra_;
};

inline Open world_of(int ranks) {
  Open open;
  open.transport = ranks == 1 ? "self" : "shm";
  open.ranks = ranks;
  open.token = fresh_token();
  open.timeout_ns = 60 * kSecond;
  return open;
}

inline std::string step_name(uint64_t step) {
  char text[32];
  std::snprintf(text, sizeof text, "step-%06llu", static_cast<unsigned long long>(step));
  return text;
}

}  // namespace meron::test

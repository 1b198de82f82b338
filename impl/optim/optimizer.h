// SPDX-License-Identifier: Apache-2.0
// AdamW on this rank's parts, and the step that all ranks make together: exact global norm, clip,
// update in place, publication of the next version.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "param/unit.h"
#include "transport/operation.h"

namespace meron {

struct AdamWOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;
  double max_norm = 0.0;  // 0: no clipping
};
Status validate(const AdamWOptions& options);

enum class OptimizerState : int32_t { master = 0, exp_avg = 1, exp_avg_sq = 2 };

class Optimizer {
 public:
  // Zero moments, and an f32 master copy of 16-bit params, for the trainable flats of the units.
  // The caller has checked the units and posted the call.
  static Result<std::shared_ptr<Optimizer>> create(std::vector<std::shared_ptr<Unit>> units,
                                                   const AdamWOptions& options);
  ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  const std::vector<std::shared_ptr<Unit>>& units() const { return units_; }
  const AdamWOptions& options() const { return options_; }
  void set_learning_rate(double value) { options_.learning_rate = value; }
  uint64_t steps() const { return steps_; }
  double norm() const { return norm_; }

  // This rank's part of a state of a param, and which elements it is. False if the param is none of
  // this optimizer's.
  bool state(const Param& param, OptimizerState which, float** data, Range* part);

 private:
  friend class StepOperation;
  struct Moments {
    float* exp_avg = nullptr;
    float* exp_avg_sq = nullptr;
  };

  Optimizer(std::vector<std::shared_ptr<Unit>> units, const AdamWOptions& options);
  Status allocate_states();
  Result<float*> allocate(const Unit& unit, uint64_t elements, const char* what);

  Rank& rank_;
  std::vector<std::shared_ptr<Unit>> units_;
  std::vector<std::vector<Moments>> moments_;  // per unit, per flat
  std::vector<Buffer> buffers_;
  AdamWOptions options_;
  uint64_t steps_ = 0;
  double norm_ = 0.0;
  bool stepping_ = false;
};

class StepOperation final : public Operation {
 public:
  // Whether a step may begin on this rank: every unit reduced, none leased. Names the first that is
  // not.
  static Status check(const Optimizer& optimizer);
  // check() has passed and the call has been posted.
  static std::shared_ptr<StepOperation> begin(std::shared_ptr<Optimizer> optimizer,
                                              Deadline deadline);

  Result<bool> advance() override;
  std::vector<int> missing() const override;
  std::string describe() const override { return "optimizer step"; }
  // Steps of one group run one after the other: they share the norm's slots.
  bool staged() const override { return true; }

 private:
  StepOperation(std::shared_ptr<Optimizer> optimizer, Deadline deadline);
  void set_stepping(bool stepping);
  static void take_squares(Unit& unit);
  void share_norm();
  Result<bool> agree_on_norm();
  void update(Unit& unit, size_t index);

  std::shared_ptr<Optimizer> optimizer_;
  double learning_rate_;
  uint64_t norm_number_ = 0;
  bool norm_known_ = false;
  double clip_ = 1.0;
  size_t updated_ = 0;  // units done
};

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
// An update rule with its states for this rank's shards of some units.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "offload/parked_buffers.h"
#include "optim/cohorts.h"
#include "optim/master_and_moments.h"
#include "optim/options.h"
#include "unit/unit.h"

namespace meron {

class Optimizer {
 public:
  // Room for zero states, and for an f32 master of 16-bit params, for the trainable flats of the
  // units. The caller has checked the units and posted the call. Needs prepare() before a step.
  static Result<std::shared_ptr<Optimizer>> create(std::vector<std::shared_ptr<Unit>> units,
                                                   const OptimizerOptions& options);
  ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Initializes the states: on nvme by writing all of them once, so that steps only overwrite. Each
  // call does what it can without waiting for the drive; true: done. Between calls the lock may be
  // released; wait for the drive by wait_for_drive().
  Result<bool> prepare();
  void wait_for_drive(int64_t timeout_ns);
  // Bytes that prepare() has begun to write, of nvme_bytes().
  uint64_t prepared_bytes() const;
  size_t prepared_units() const { return prepared_; }
  uint64_t nvme_bytes() const { return file_ ? file_->bytes() : 0; }

  const std::vector<std::shared_ptr<Unit>>& units() const { return units_; }
  const OptimizerOptions& options() const { return options_; }
  uint64_t steps() const { return steps_; }
  // For states that were loaded, of all params. Not during a step.
  void set_steps(uint64_t steps);
  // Steps that count for a param that it trains: all but those that skipped it.
  uint64_t steps_of(const Param& param) const;
  // Sets them, for states that were loaded or begin anew. Not during a step.
  void set_param_steps(const std::map<const Param*, uint64_t>& steps);
  // Makes the next steps leave these params as they are, and no others. Not during a step.
  void skip(const std::vector<const Param*>& params);
  // MERON_E_ARGUMENT for a param that it does not train.
  Status check_trained(const Param& param) const;
  double norm() const { return norm_; }

  // Groups of params. Group 0 has those that are in no other.
  size_t groups() const { return groups_.size(); }
  const GroupOptions& group(size_t index) const { return groups_[index]; }
  // The options have been validated.
  void set_max_norm(double max_norm) { options_.max_norm = max_norm; }
  void set_group(size_t index, const GroupOptions& options) { groups_[index] = options; }
  // MERON_E_ARGUMENT for a param that this optimizer does not train, MERON_E_DUPLICATE for one that
  // is in a group besides 0 already.
  Result<uint32_t> add_group(const std::vector<const Param*>& params, const GroupOptions& options);
  // Hash of everything that must be equal on all ranks for the next step.
  uint64_t fingerprint() const;

  // This rank's slice of a state of a param. MERON_E_ARGUMENT if there is no such state.
  struct Place {
    FlatStates* states;
    int state;       // as FlatStates::read takes it
    uint64_t first;  // element of the flat
    Range slice;     // of the param
  };
  Result<Place> place(const Param& param, OptimizerState which);

  // Of a flat of one of its units; null if nothing trains, or the unit is not one of them.
  FlatStates* states(const Unit& unit, size_t flat) const;

  bool stepping() const { return stepping_; }

  // Moves the states on the host to this rank's file (in `folder`, or the existing file), and back.
  // Both wait for the drive. If one fails, everything is as before, except that the buffers of
  // transfers which the drive did not answer are not released.
  Status offload(const std::string& folder);
  Status reload();
  bool offloaded() const { return parked_ != nullptr; }
  uint64_t offloaded_bytes() const { return parked_ ? parked_->bytes() : 0; }
  // MERON_E_STATE if states cannot be used now.
  Status check_idle() const;

 private:
  friend class StepOperation;
  Optimizer(std::vector<std::shared_ptr<Unit>> units, const OptimizerOptions& options);
  Status allocate_states();
  Result<bool> fill_unit(size_t unit);
  // The flat of a sub-group.
  FlatStates& states_of(const StateFile::SubGroup& group) { return *regions_[group.region]; }
  // For a change of cohorts_.
  void index_cohorts();
  // The numbers of the next step. `groups`: as they were when it began.
  CohortSteps next_step(const std::vector<GroupOptions>& groups, double clip) const;
  void count_step();

  Rank& rank_;
  std::vector<std::shared_ptr<Unit>> units_;
  // Per unit, per flat; null if nothing trains.
  std::vector<std::vector<std::unique_ptr<FlatStates>>> states_;
  std::vector<Buffer> buffers_;
  std::unique_ptr<ParkedBuffers> parked_;  // null: not offloaded
  std::unique_ptr<StateFile> file_;        // null: nothing is on nvme
  std::vector<FlatStates*> regions_;
  std::vector<size_t> sub_groups_end_;  // by unit: the number of sub-groups up to its end
  std::unique_ptr<StatePass> filling_;
  size_t prepared_ = 0;        // units whose states are initialized
  bool holds_values_ = false;  // of the next one, by a lease
  OptimizerOptions options_;
  std::vector<GroupOptions> groups_;
  Cohorts cohorts_;
  uint64_t membership_ = 0;  // hash of what add_group was given
  uint64_t steps_ = 0;
  double norm_ = 0.0;
  bool stepping_ = false;
};

}  // namespace meron

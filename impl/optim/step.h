// SPDX-License-Identifier: Apache-2.0
// The step that all ranks make together: exact global norm, clip, update in place, publication of
// the next version.
//
// States on nvme are read ahead from its begin on. Nothing is written, neither values nor states,
// before the norm is known to be finite on all ranks.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collective/operation.h"
#include "optim/nonfinite.h"
#include "optim/norm_exchange.h"
#include "optim/optimizer.h"

namespace meron {

class StepOperation final : public Operation {
 public:
  // Checks that a step may begin on this rank: every unit is reduced and none is leased. The error
  // names the first unit that prevents it.
  static Status check(const Optimizer& optimizer);
  // check() has passed. Takes the memory that begin() needs.
  static std::shared_ptr<StepOperation> prepare(std::shared_ptr<Optimizer> optimizer,
                                                Deadline deadline);
  // The call has been posted.
  void begin(uint64_t sequence);

  Result<bool> advance() override;
  std::vector<int> missing() const override;
  std::string describe() const override { return "optimizer step"; }
  std::string waits_for_drive() const override;
  // Steps of one group run one after the other: they share the norm's slots.
  bool staged() const override { return true; }

 private:
  StepOperation(std::shared_ptr<Optimizer> optimizer, Deadline deadline);
  void set_stepping(bool stepping);
  void end();
  Status share_norm();
  Result<bool> agree_on_norm();
  Result<NonFinitePlace> find_overflow();
  Result<NonFinitePlace> find_held_overflow();
  // All ranks take the step.
  Result<bool> accept();
  // No rank takes it, and all drop the gradients.
  Status drop_gradients();
  Error skip(double norm);
  Error refuse_held(const NonFinitePlace& place, int member);
  Error refuse_overflow(const std::string& places);
  // The first unit that a save still copies; null: none.
  const Unit* first_held() const;
  bool begin_pass();
  // Advances the transfers of the drive.
  Status move_pass();
  // Updates a sub-group that was read from the drive, or some states in memory; false: nothing may
  // be updated now.
  Result<bool> update_some();
  Result<std::byte*> records_read();
  Result<bool> update_memory();
  // Enqueues it on the device, behind all readers of the values.
  Status update_on_device(FlatStates& states);
  Status open_units();
  Result<bool> open(size_t unit);
  // True once all of a unit has been updated.
  bool is_updated(size_t unit) const;
  // True if peers read the flat's values next, in place.
  static bool handed_over(const FlatStates& states);
  Error fail(Error error);

  std::shared_ptr<Optimizer> optimizer_;  // null: the step has ended
  struct Given {
    std::vector<GroupOptions> groups;
    double max_norm;
  };
  const Given given_;  // as it was when the step began
  NormExchange norm_;
  // Of the ranks, on the norm; then, if it is not finite, on its cause, and if their numbers are
  // nearly infinite, on whether the step would make some infinite.
  enum class Agreement { on_norm, on_cause, on_overflow, reached };
  Agreement agreement_ = Agreement::on_norm;
  CohortSteps numbers_;        // once the norm is known
  StatePass* pass_ = nullptr;  // the optimizer's; null: nothing is on nvme
  size_t updated_ = 0;         // units done
  size_t opened_ = 0;          // units whose old values no rank uses and whose new ones have room
  size_t drive_unit_ = 0;      // of the next read
  // States in memory have been updated up to this unit, flat and element.
  size_t host_unit_ = 0, host_flat_ = 0;
  uint64_t host_elements_ = 0;
};

}  // namespace meron

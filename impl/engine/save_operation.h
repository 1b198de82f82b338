// SPDX-License-Identifier: Apache-2.0
// One save of a context's states, from the call that begins it to its end on this rank.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collective/operation.h"
#include "optim/optimizer.h"
#include "saving/saver.h"
#include "state/unit_state.h"
#include "unit/unit.h"

namespace meron {

// The context's lock guards all but `options`. The thread of saves ends it. Waiting threads only
// check for its end.
class SaveOperation final : public Operation {
 public:
  // `units`, which stay, and `optimizers` own what `states_in` show. From here to copied() the
  // units are held.
  SaveOperation(Channel& channel, SaveOptions options_in,
                std::vector<std::shared_ptr<Optimizer>> optimizers,
                std::vector<std::shared_ptr<Unit>> units, std::vector<UnitState> states_in)
      : Operation(channel, Deadline::never()),
        options(std::move(options_in)),
        states(std::move(states_in)),
        units_(std::move(units)),
        optimizers_(std::move(optimizers)) {
    for (const auto& unit : units_) unit->hold_for_save();
  }

  Result<bool> advance() override { return false; }
  std::vector<int> missing() const override { return {}; }
  std::shared_ptr<Operation> behind() const override { return agreement; }
  std::string waits_for_drive() const override { return "files are being written"; }
  std::string describe() const override { return fmt::format("save of '{}'", options.target.name); }
  bool looked_after() const override { return true; }

  bool copied() const { return copied_; }
  // Nothing reads states or tensors of the caller any more, however the save ended. Units stay
  // known by name, and optimizers may go.
  void end_holds() {
    copied_ = true;
    for (const auto& unit : units_) unit->end_hold();
    optimizers_.clear();
  }

  const SaveOptions options;
  const std::vector<UnitState> states;
  std::shared_ptr<Operation> agreement;  // that it waits in now; null: in none

 private:
  std::vector<std::shared_ptr<Unit>> units_;
  std::vector<std::shared_ptr<Optimizer>> optimizers_;
  bool copied_ = false;
};

}  // namespace meron

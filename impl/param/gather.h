// SPDX-License-Identifier: Apache-2.0
// A gather: units on their way to full, then leased. Sharded values are full as soon as every owner
// has published the version; replicated values are made whole by copying the peers' parts once per
// version.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "param/unit.h"
#include "transport/operation.h"

namespace meron {

enum class GatherMode : int32_t { view = 0, copy = 1, into = 2 };

// Where one param goes in mode `copy` (memory of the arena) or `into` (the caller's).
struct GatherTarget {
  const Param* param = nullptr;
  std::byte* data = nullptr;
  Buffer buffer;  // mode `copy` only
};

class GatherOperation final : public Operation {
 public:
  // The caller has checked the units and posted the call. Takes a lease on every unit.
  static Result<std::shared_ptr<GatherOperation>> begin(std::vector<std::shared_ptr<Unit>> units,
                                                        GatherMode mode,
                                                        std::vector<GatherTarget> targets,
                                                        Deadline deadline);
  ~GatherOperation() override;

  Result<bool> advance() override;
  std::vector<int> missing() const override;
  std::string describe() const override;
  bool begins_alone() const override { return true; }

  GatherMode mode() const { return mode_; }
  const std::vector<std::shared_ptr<Unit>>& units() const { return units_; }
  // The whole tensor of a param; null when it is not part of the gather.
  const std::byte* data(const Param& param) const;

  // Gives the leases back; once.
  Status release();
  bool released() const { return released_; }

 private:
  GatherOperation(std::vector<std::shared_ptr<Unit>> units, GatherMode mode,
                  std::vector<GatherTarget> targets, Deadline deadline);
  bool make_whole(Unit& unit, size_t index);
  // Where ranks share no memory: begins to send this rank's parts and to receive the peers'.
  Status exchange();
  void copy_targets();

  std::vector<std::shared_ptr<Unit>> units_;
  std::vector<uint64_t> versions_;  // per unit: the version that is gathered
  std::vector<bool> whole_;         // per unit
  GatherMode mode_;
  std::vector<GatherTarget> targets_;
  std::shared_ptr<Batch> batch_;                  // where ranks share no memory
  std::vector<std::shared_ptr<Batch>> arriving_;  // this one, and what was begun before
  bool released_ = false;
};

}  // namespace meron

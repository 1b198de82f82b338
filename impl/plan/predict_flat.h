// SPDX-License-Identifier: Apache-2.0
// The cost of one flat on each rank: the terms of predict.h. Internal to this folder.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/plan.h"
#include "plan/predict.h"

namespace meron {

// Figures are summed in 128 bits and compared with 64 once, at the end. With the limits of
// predict() the largest sum has 51 (bytes of a flat) + 30 (gathers) + 32 (flats) + 16 (ranks) bits:
// exact.
__extension__ using Wide = unsigned __int128;

enum Figure : size_t {
  kParam,
  kSecondaryPartition,
  kBuckets,
  kReduced,
  kFeedback,
  kMoments,
  kMaster,
  kStateBuffers,
  kParamBuffers,
  kMapped,
  kCopied,
  kReduce,
  kInterNodeGather,
  kInterNodeReduce,
  kNvmeOptimizer,
  kNvmeParam,
  kNvmeRead,
  kNvmeWritten,
  kDeviceParam,
  kDeviceGradient,
  kDeviceOptimizer,
  kFigures
};

struct Tally : std::array<Wide, kFigures> {
  Tally() : std::array<Wide, kFigures>{} {}
  Tally& operator+=(const Tally& other) {
    for (size_t i = 0; i < kFigures; ++i) (*this)[i] += other[i];
    return *this;
  }
};

// Adds a flat's own cost, without costs that flats share, to the tallies of all ranks of `mesh`.
// `stored`: its unit's values reside on the tier of the plan's param entry, other than the host.
void add_cost(const FlatDesc& flat, bool stored, const Plan& plan, const Workload& load,
              const MeshShape& mesh, std::vector<Tally>& ranks);

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
// What the objects of one rank share: its plan, its memory and threads, its counters.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/counters.h"
#include "base/held.h"
#include "collective/operation.h"
#include "device/device_side.h"
#include "io/storage.h"
#include "memory/arena.h"
#include "os/thread_pool.h"
#include "plan/plan.h"
#include "plan/value_layout.h"
#include "rank/copy_pace.h"
#include "transport/transport.h"

namespace meron {

class Gradient;
class Unit;

// Under a plan that shards gradients, whole gradients exist only from a unit's backward to its
// reduction: in buckets that units use in turn.
class GradientRing {
 public:
  struct Bucket {
    Buffer buffer;
    Gradient* last_user = nullptr;  // which was here, and
    uint64_t last_reduction = 0;    // in which of its reductions,
    bool between = false;           // which was between replicas too
    uint64_t turn = 0;              // when it was taken last
    bool held = false;              // being filled, or being reduced by this rank
  };

  // Every bucket holds the largest unit. Called when a unit is made.
  void require(uint64_t bytes) {
    if (bytes > bytes_) bytes_ = bytes;
  }
  uint64_t bytes() const { return bytes_; }
  std::vector<Bucket>& buckets() { return buckets_; }
  uint64_t turns = 0;    // taken so far
  bool growing = false;  // a thread releases the lock to get memory for it: none is taken
  CopyPace pace;         // of the caller's gradients into buckets

 private:
  uint64_t bytes_ = 0;
  std::vector<Bucket> buckets_;
};

// Tier nvme of a rank.
struct RankDrive {
  std::unique_ptr<Storage> storage;  // null until something is kept there
  std::string folder;                // as it was named
  std::vector<Unit*> storing;        // whose changed values are written; see Unit::may_change()
  size_t units_here = 0;             // units of the tier whose own values have memory now
};

struct Rank {
  Transport& transport;
  Plan plan;
  ThreadPool threads;
  Counters counters;
  int64_t timeout_ns = 0;
  GradientRing ring;
  std::vector<Unit*> to_settle;      // hold staged values until local peers have released them
  std::vector<std::string> notices;  // for the log, which may not be called under the lock
  RankDrive drive;

  std::unique_ptr<DeviceSide> device;  // null: this rank computes on the host

  std::map<uint32_t, Residency> residency;  // by group

  Rank(Transport& transport_in, Plan plan_in, int threads_in, int64_t timeout_in,
       std::vector<int> cpus = {})
      : transport(transport_in),
        plan(std::move(plan_in)),
        threads(threads_in, std::move(cpus)),
        timeout_ns(timeout_in) {}

  Arena& arena() { return transport.arena(); }
  // Opens it where it is not open yet, in the plan's folder or in the one that is given. Looks at
  // the drive, and writes a little to try it.
  Result<Storage*> open_storage(std::string folder = {}) {
    if (folder.empty()) folder = drive.storage ? drive.folder : plan.nvme.path;
    if (folder.empty()) {
      return Error(MERON_E_ARGUMENT, "no folder was given, and the plan names none",
                   "give a folder on a drive");
    }
    if (drive.storage && folder != drive.folder) {
      return Error(MERON_E_ARGUMENT,
                   "this rank's file lies in another folder, '" + drive.folder + "'",
                   "name the same folder, or none")
          .on(folder);
    }
    if (drive.storage) return drive.storage.get();
    const IoOptions options{.block = plan.nvme.block,
                            .depth = plan.nvme.depth,
                            .threads = static_cast<int>(plan.nvme.threads)};
    const auto open = [&] {
      const Recess recess;
      return Storage::open(folder, options, [this] { transport.ring(); });
    };
    MERON_ASSIGN(drive.storage, open());
    drive.folder = std::move(folder);
    return drive.storage.get();
  }
  Deadline deadline() const { return Deadline::after(timeout_ns); }
  // A unit that stayed in memory was destroyed, so the next one may stay.
  void forget_resident(uint32_t group, const std::vector<FlatDesc>& flats, const MeshShape& mesh) {
    const auto found = residency.find(group);
    if (found != residency.end()) found->second.forget(flats, mesh);
  }
  // So that the device copies from and to it by itself, where there is one.
  void pin(std::byte* data, uint64_t bytes) {
    if (!device || bytes == 0) return;
    std::string notice;
    device->pin(data, bytes, &notice);
    if (!notice.empty()) notices.push_back(std::move(notice));
  }
  // True if the values of a group's next unit are on nvme: the same on all its ranks.
  bool stores(uint32_t group, const std::vector<FlatDesc>& flats, const MeshShape& mesh) {
    return residency.try_emplace(group, plan).first->second.store(flats, mesh);
  }
};

}  // namespace meron

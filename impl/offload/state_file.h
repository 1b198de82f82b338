// SPDX-License-Identifier: Apache-2.0
// Optimizer states on tier nvme: as records (plan/state_layout.h) in this rank's file, and the
// memory that they pass through on their way to an update and back.
//
// Every record has a checksum in memory: bytes from the drive are compared before they are used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/counters.h"
#include "base/result.h"
#include "io/storage.h"
#include "memory/arena.h"
#include "plan/plan.h"
#include "plan/state_layout.h"

namespace meron {

class StatePass;

class StateFile {
 public:
  // States of a run of elements: those of one flat on nvme.
  struct Region {
    StateShape shape;
    uint64_t elements = 0;
    std::string name;  // for errors
  };
  // Elements that are read, updated and written together.
  struct SubGroup {
    size_t region = 0;
    uint64_t first = 0;  // element of the region
    uint64_t elements = 0;
    uint64_t offset = 0;  // in the file
    uint64_t bytes = 0;
    size_t record = 0;  // the number of its first record
    uint64_t records() const { return (elements + kRecord - 1) / kRecord; }
  };

  // Takes room in the file and in the arena. Nothing is written yet: see StatePass::Kind::fill.
  static Result<std::unique_ptr<StateFile>> create(Storage& storage, Arena& arena,
                                                   Counters& counters, const Plan& plan,
                                                   int64_t timeout_ns, std::vector<Region> regions);
  ~StateFile();
  StateFile(const StateFile&) = delete;
  StateFile& operator=(const StateFile&) = delete;

  const Region& region(const SubGroup& group) const { return regions_[group.region]; }
  const std::vector<SubGroup>& sub_groups() const { return sub_groups_; }
  uint64_t bytes() const { return extent_.bytes; }

  // A record of a sub-group in memory: where it begins, how many elements it has, and its checksum.
  // The last two may be called from any thread, for a record by one at a time.
  std::byte* record(const SubGroup& group, uint64_t number, std::byte* data) const;
  uint64_t record_elements(const SubGroup& group, uint64_t number) const;
  void seal(const SubGroup& group, uint64_t number, const std::byte* data);
  Status verify(const SubGroup& group, uint64_t number, const std::byte* data) const;

  // The pass over the sub-groups that steps use. All have been filled.
  StatePass& pass();

  // Calls visit(sub-group, its records in memory) for all that have some of `count` elements from
  // `first` on, one after the other, and writes them back where `write`. Not while a round is under
  // way. Waits for the drive, for each transfer at most the timeout: MERON_E_TIMEOUT then, and
  // from then on, because a drive that has not answered may still write to the memory.
  using Visit = std::function<void(const SubGroup&, std::byte*)>;
  Status visit(size_t region, uint64_t first, uint64_t count, bool write, const Visit& visit);

 private:
  friend class StatePass;
  StateFile(Storage& storage, Arena& arena, Counters& counters, int64_t timeout_ns,
            std::vector<Region> regions);
  Status await(const IoTicket& transfer);

  Storage& storage_;
  Arena& arena_;
  Counters& counters_;
  const int64_t timeout_ns_;
  std::vector<Region> regions_;
  std::vector<SubGroup> sub_groups_;  // in the order in which a step uses them
  std::vector<size_t> first_of_;      // by region: its first sub-group
  std::vector<uint32_t> checksums_;   // by record
  Extent extent_;
  Buffer memory_;  // sub-groups pass through it; pinned for the drive where that is allowed
  std::unique_ptr<StatePass> pass_;
  bool held_ = false;  // abandoned transfers have not ended
};

// Goes over all sub-groups in their order, again and again: some are read ahead while one is
// updated and others are written. The time of a round is that of the slowest of the three; what is
// still to be written at its end is written after it, and the first ones of the next are read
// before it.
//
// Memory is allocated and released in order, as in a ring. Used by one thread at a time.
class StatePass {
 public:
  enum class Kind {
    update,  // read, returned by front(), written
    fill,    // returned by front() as in memory, to be filled, and written; one round
  };
  StatePass(StateFile& file, Kind kind);
  // Waits for transfers under way, at most five seconds: their memory is the file's.
  ~StatePass();
  StatePass(const StatePass&) = delete;
  StatePass& operator=(const StatePass&) = delete;

  // Notes ended transfers, and begins those that have room. Never waits. An error may be that of a
  // transfer of the round before.
  Status advance();
  // The next sub-group in order, once it is in memory; null: not yet. Its records have not been
  // verified.
  std::byte* front();
  const StateFile::SubGroup& sub_group() const { return of(next_); }
  // The front has been updated and sealed. Begins its write to the drive.
  void pop();
  // Number of this round's sub-groups that were popped.
  size_t handed_out() const { return next_ - round_; }
  bool handed_out_all() const { return handed_out() == file_.sub_groups_.size(); }
  // After that: the next round.
  void begin_round() { round_ = next_; }
  bool idle() const { return slots_.empty(); }
  // Waits for transfers under way, and drops sub-groups that were read ahead.
  Status settle();
  // Sleeps until a transfer ends, at most `timeout_ns`.
  void wait(int64_t timeout_ns);
  // "2 reads and 1 writes of /local are under way", for messages.
  std::string describe() const;

 private:
  enum class Phase { reading, ready, writing };
  struct Slot {
    size_t number = 0;  // of the sub-group, counted through all rounds
    uint64_t begin = 0;
    Phase phase = Phase::reading;
    std::shared_ptr<IoTicket> transfer = nullptr;  // null while ready
  };
  const StateFile::SubGroup& of(size_t number) const {
    return file_.sub_groups_[number % file_.sub_groups_.size()];
  }
  bool take_room(uint64_t bytes, uint64_t* begin) const;
  // True if the next one may be read: a fill has only one round, and a sub-group is not read while
  // its write is pending.
  bool may_begin() const;
  Slot* slot_of(size_t number);
  std::byte* data(const Slot& slot) const { return file_.memory_.data + slot.begin; }

  StateFile& file_;
  const Kind kind_;
  std::deque<Slot> slots_;  // in order
  size_t begun_ = 0;        // that have, or had, a slot
  size_t next_ = 0;         // front()
  size_t round_ = 0;        // where this round began
};

}  // namespace meron

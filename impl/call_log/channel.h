// SPDX-License-Identifier: Apache-2.0
// A group's log of calls: their order, checked by fingerprints; the words through which members see
// each other's progress. Its sticky error: group_failure.h. Peers that never arrive: dead_peers.h.
//
// Checking costs no wait. A member that begins call s stores its record, then `posted` = s, and
// then compares with every member that has posted s already. Of two members at least one sees the
// other (both accesses are seq_cst), so every pair is compared, by the later one at the latest.
// The member that finds a difference breaks the group with the error of diverging_calls.h.
//
// Threads: post and fail are called under the context's lock; the rest from anywhere.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/counters.h"
#include "base/layout.h"
#include "base/result.h"
#include "call_log/call.h"
#include "call_log/group_control.h"
#include "call_log/group_failure.h"
#include "call_log/staging_peers.h"
#include "topology/members.h"
#include "transport/transport.h"

namespace meron {

inline constexpr uint32_t kMaxChannels = (1u << 12) - 1;

class Channel {
 public:
  // `control_offset`: of group_bytes(members.size()) in the window, reserved, zero. `number`: the
  // same on all members, below kMaxChannels, and of no other channel that two of them are in.
  // `parent`: a group whose axis this is; it breaks, and is broken, with it.
  Channel(Transport& transport, Counters& counters, Members members, uint64_t control_offset,
          uint32_t number, Channel* parent = nullptr);

  const Members& members() const { return members_; }
  int index() const { return members_.index(); }
  int size() const { return members_.size(); }
  Transport& transport() const { return transport_; }
  // See staging_peers.h.
  Link* link() const { return staging_.link; }
  bool is_local(int member) const { return staging_.local[static_cast<size_t>(member)]; }
  const std::vector<int>& exports() const { return staging_.exports; }
  int holder(int owner) const { return staging_.holders[static_cast<size_t>(owner)]; }
  Counters& counters() const { return counters_; }

  // True if the next call may be posted: no member is a whole ring behind.
  bool has_room();
  // These break the group; see dead_peers.cpp. check_alive(): a member has died.
  Status check_alive();
  // An error if no room will be free: a member that is a ring behind has gone, or `deadline`
  // passed.
  Status check_stragglers(Deadline deadline);
  // Ok if the members that have not begun call `sequence` can still do so.
  Status check_present(uint64_t sequence, Deadline deadline);
  // Begins a call: gives it the next sequence number, publishes it, checks it. There must be room.
  Result<uint64_t> post(const Call& call);

  // Ok if all members that have begun call `sequence` began the same. For operations that end
  // because peers have begun them: the comparison by the later member may still be under way.
  Status verify(uint64_t sequence);

  // The same for all calls up to this one; true once all members have begun it. Operations of ranks
  // that share no memory wait for this: neither of two ranks may see the other's call when it
  // begins its own.
  Result<bool> agreed(uint64_t sequence);
  std::vector<int> not_begun(uint64_t sequence) const {
    return below(sequence,
                 [&](int m) { return blocks_[m].posted.load(std::memory_order_seq_cst); });
  }

  // The sticky error, or Ok.
  Status status() const {
    if (parent_ != nullptr) MERON_TRY(parent_->status());
    return failure_.status();
  }
  // The same at the start of a call that did not break the group: the error says when the group
  // broke.
  Status usable() const {
    if (parent_ != nullptr) MERON_TRY(parent_->usable());
    return failure_.usable(number_ == 0 ? "context" : "group");
  }
  // Sets the text of messages about a member whose call of `open` differs.
  void explain_open(std::function<std::string(int member)> difference) {
    difference_ = std::move(difference);
  }
  // Breaks the group with `error`, unless it is broken already. Returns the error that holds.
  Error fail(const Error& error) {
    return parent_ != nullptr ? parent_->fail(error) : failure_.report(error);
  }

  MemberBlock& own() { return blocks_[index()]; }

  // Stores a word of this rank's own in the window, after all that peers will find through it.
  template <class Word>
  void announce(Word& word, uint64_t value) {
    // First what may fail: the word must not be there on this node alone.
    if (Link* const link = staging_.link) {
      link->store_word(members_.ranks(), transport_.offset_of(&word), value);
    }
    word.store(value, std::memory_order_seq_cst);
  }
  // Lets peers see what was written into this rank's own part of the window: before `announce`.
  void share(const void* data, uint64_t bytes) {
    if (Link* const link = staging_.link) {
      link->store(members_.ranks(), transport_.offset_of(data), round_up(bytes, 8));
    }
  }
  // The same, for some members alone: what they read, and no others.
  void share(const void* data, uint64_t bytes, const std::vector<int>& members) {
    Link* const link = staging_.link;
    if (link == nullptr || bytes == 0 || members.empty()) return;
    std::vector<int> ranks;
    for (const int member : members) ranks.push_back(members_.world_rank(member));
    link->store(ranks, transport_.offset_of(data), round_up(bytes, 8));
  }
  uint64_t tag(uint64_t sequence, uint32_t phase) const { return tag_of(number_, sequence, phase); }

  const MemberBlock& member(int index) const { return blocks_[index]; }
  uint64_t posted() const { return next_ - 1; }
  // When the last of them was, on the clock of now_ns().
  int64_t posted_ns() const { return posted_ns_; }

  // Bytes of a member's arena, in place.
  const std::byte* memory(int member, uint64_t offset) const {
    return transport_.peer(members_.world_rank(member), offset);
  }
  // Members (by index) whose word is below `value`.
  template <class Word>
  std::vector<int> below(uint64_t value, Word word) const {
    std::vector<int> late;
    for (int m = 0; m < size(); ++m) {
      if (word(m) < value) late.push_back(m);
    }
    return late;
  }
  // The world ranks of members: see base/rank_text.h.
  std::string ranks_text(const std::vector<int>& members) const;
  // A member's last call, for messages.
  std::string last_call_text(int member) const;

 private:
  Status check_behind(uint64_t sequence, Deadline deadline, std::string_view closed_when,
                      std::string_view late_how);
  Status compare(uint64_t sequence, const CallRecord& own);

  Transport& transport_;
  Counters& counters_;
  Members members_;
  StagingPeers staging_;
  uint32_t number_;
  Channel* parent_;
  std::function<std::string(int)> difference_;
  MemberBlock* blocks_;
  GroupFailure failure_;
  uint64_t next_ = 1;
  int64_t posted_ns_ = 0;
  uint64_t compared_ = 0;  // where ranks share no memory: with all members, up to this call
  uint64_t slowest_ = 0;   // a lower bound of the peers' posted
};

}  // namespace meron

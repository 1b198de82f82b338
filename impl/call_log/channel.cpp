// SPDX-License-Identifier: Apache-2.0
#include "call_log/channel.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/hash.h"
#include "base/rank_text.h"
#include "call_log/diverging_calls.h"

namespace meron {
Channel::Channel(Transport& transport, Counters& counters, Members members, uint64_t control_offset,
                 uint32_t number, Channel* parent)
    : transport_(transport),
      counters_(counters),
      members_(std::move(members)),
      staging_(transport, members_),
      number_(number),
      parent_(parent),
      blocks_(reinterpret_cast<MemberBlock*>(transport.window().writable(control_offset + 4096))),
      failure_(transport, members_, staging_.link,
               reinterpret_cast<GroupHeader*>(transport.window().writable(control_offset)),
               blocks_) {}

// The slot of call s still holds call s - kRing. It may be used again once all peers have begun the
// call after that one: this rank and each peer are compared by then, by the later of the two in
// post(), if they share memory. If not, this rank compares in post(), before it uses the slot.
bool Channel::has_room() {
  if (next_ <= kRing || slowest_ > next_ - kRing) return true;
  slowest_ = next_;
  for (int m = 0; m < size(); ++m) {
    if (m == index()) continue;
    slowest_ = std::min(slowest_, blocks_[m].posted.load(std::memory_order_seq_cst));
  }
  return slowest_ > next_ - kRing;
}

Result<uint64_t> Channel::post(const Call& call) {
  MERON_TRY(usable());
  // Calls that are no operations are compared here, before their slots are used again.
  if (link() != nullptr && next_ > 1) MERON_TRY(agreed(next_ - 1));
  const uint64_t sequence = next_;
  CallRecord record;
  record.sequence = sequence;
  record.bytes = call.bytes;
  record.begun_ns = posted_ns_ = now_ns();
  record.operation = static_cast<uint32_t>(call.kind);
  record.fingerprint =
      hash_combine(hash_combine(hash_combine(hash_text(call.subject), call.bytes), call.detail),
                   record.operation);
  put_text(record.subject, call.subject);

  MemberBlock& mine = own();
  CallSlot& slot = mine.ring[sequence % kRing];
  slot.store(record);
  share(&slot, sizeof(slot));
  announce(mine.posted, sequence);
  ++next_;
  if (call.kind == CallKind::step) failure_.note_step();
  add(counters_.operations, 1);
  if (size() > 1) {
    MERON_TRY(compare(sequence, record));
    transport_.ring();
  }
  return sequence;
}

Status Channel::verify(uint64_t sequence) {
  const CallRecord record = own().ring[sequence % kRing].load();
  // A later call has its slot: all members have begun, and compared, what came after this one.
  if (record.sequence != sequence) return status();
  return compare(sequence, record);
}

Result<bool> Channel::agreed(uint64_t sequence) {
  uint64_t begun = sequence;
  for (int m = 0; m < size(); ++m) {
    begun = std::min(begun, blocks_[m].posted.load(std::memory_order_seq_cst));
  }
  while (compared_ < begun) MERON_TRY(verify(++compared_));
  if (compared_ >= sequence) return true;
  // Some are still to come: those that are there may differ already.
  MERON_TRY(verify(sequence));
  return false;
}

Status Channel::compare(uint64_t sequence, const CallRecord& own) {
  for (int m = 0; m < size(); ++m) {
    if (m == index()) continue;
    const MemberBlock& peer = blocks_[m];
    if (peer.posted.load(std::memory_order_seq_cst) < sequence) continue;
    const CallSlot& slot = peer.ring[sequence % kRing];
    if (slot.fingerprint() == own.fingerprint) continue;
    const CallRecord other = slot.load();
    // The peer has used the slot again. The two were compared before: see has_room(). (Where they
    // share no memory, with the record that this rank still has, so that the peer had it too.)
    if (other.sequence > sequence) continue;
    const bool both_open =
        own.operation == static_cast<uint32_t>(CallKind::open) && other.operation == own.operation;
    return fail(diverging_calls(sequence, transport_.rank(), own, members_.world_rank(m), other,
                                difference_ && both_open ? difference_(m) : std::string()));
  }
  return Ok{};
}

std::string Channel::ranks_text(const std::vector<int>& members) const {
  std::vector<int> ranks;
  for (const int m : members) ranks.push_back(members_.world_rank(m));
  std::sort(ranks.begin(), ranks.end());
  return meron::ranks_text(ranks);
}

std::string Channel::last_call_text(int member) const {
  const uint64_t posted = blocks_[member].posted.load(std::memory_order_seq_cst);
  if (posted == 0) return "has made no call yet";
  return fmt::format("made call {}, {}, last", posted,
                     call_text(blocks_[member].ring[posted % kRing].load()));
}

}  // namespace meron

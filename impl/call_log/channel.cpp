// SPDX-License-Identifier: Apache-2.0
#include "call_log/channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>

#include "base/hash.h"
#include "base/rank_text.h"
#include "os/host.h"

namespace meron {
namespace {

template <size_t N>
void copy_text(char (&to)[N], std::string_view from) {
  const size_t count = std::min(from.size(), N - 1);
  std::memcpy(to, from.data(), count);
  to[count] = '\0';
}

}  // namespace

std::string_view name_of(CallKind kind) {
  switch (kind) {
    case CallKind::open:
      return "context_open";
    case CallKind::register_param:
      return "param_register";
    case CallKind::create_unit:
      return "unit_create";
    case CallKind::create_group:
      return "group_create";
    case CallKind::create_optimizer:
      return "optimizer_create";
    case CallKind::gather:
      return "gather";
    case CallKind::reduce:
      return "reduce";
    case CallKind::update:
      return "update";
    case CallKind::step:
      return "optimizer_step";
    case CallKind::barrier:
      return "barrier";
    case CallKind::broadcast:
      return "broadcast";
    case CallKind::all_reduce:
      return "all_reduce";
    case CallKind::create_schedule:
      return "schedule_create";
    case CallKind::finish:
      return "reduce_finish";
    case CallKind::destroy_unit:
      return "unit_destroy";
    case CallKind::save:
      return "checkpoint_save";
    case CallKind::load:
      return "checkpoint_load";
    case CallKind::export_model:
      return "checkpoint_export";
    case CallKind::agree:
      return "agreement";
  }
  return "call";
}

void CallSlot::store(const CallRecord& record) {
  const auto words = std::bit_cast<std::array<uint64_t, sizeof(CallRecord) / 8>>(record);
  for (size_t i = 0; i < words.size(); ++i) words_[i].store(words[i], std::memory_order_relaxed);
}

CallRecord CallSlot::load() const {
  std::array<uint64_t, sizeof(CallRecord) / 8> words;
  for (size_t i = 0; i < words.size(); ++i) words[i] = words_[i].load(std::memory_order_relaxed);
  CallRecord record = std::bit_cast<CallRecord>(words);
  record.subject[sizeof(record.subject) - 1] = '\0';
  return record;
}

Channel::Channel(Transport& transport, Counters& counters, Members members, uint64_t control_offset,
                 uint32_t number, Channel* parent)
    : transport_(transport),
      counters_(counters),
      members_(std::move(members)),
      control_offset_(control_offset),
      number_(number),
      parent_(parent),
      header_(reinterpret_cast<GroupHeader*>(transport.window().writable(control_offset))),
      blocks_(reinterpret_cast<MemberBlock*>(transport.window().writable(control_offset + 4096))) {
  std::map<int, std::vector<int>> nodes;
  std::vector<uint64_t> positions;  // in its node
  for (int m = 0; m < size(); ++m) {
    const int rank = members_.world_rank(m);
    local_.push_back(transport.is_local(rank));
    if (!local_.back()) link_ = transport.link();
    auto& node = nodes[transport.node(rank)];
    positions.push_back(node.size());
    node.push_back(m);
  }
  const auto of = [](const std::vector<int>& node, uint64_t position) {
    return node[importer_of(position, node.size())];
  };
  const int home = transport.node(transport.rank());
  for (const auto& [number_of_node, node] : nodes) {
    if (number_of_node != home)
      exports_.push_back(of(node, positions[static_cast<size_t>(index())]));
  }
  for (int m = 0; m < size(); ++m) {
    holders_.push_back(is_local(m) ? m : of(nodes.at(home), positions[static_cast<size_t>(m)]));
  }
}

// The slot of call s still holds call s - kRing, which every peer must have compared: it has when
// it began the one after.
bool Channel::has_room() {
  if (next_ <= kRing || slowest_ > next_ - kRing) return true;
  slowest_ = next_;
  for (int m = 0; m < size(); ++m) {
    if (m == index()) continue;
    slowest_ = std::min(slowest_, blocks_[m].posted.load(std::memory_order_seq_cst));
  }
  return slowest_ > next_ - kRing;
}

Status Channel::check_stragglers(Deadline deadline) {
  return check_behind(next_ - kRing + 1, deadline, fmt::format("{} calls behind", kRing),
                      fmt::format("this rank is {} calls ahead of", kRing));
}

Status Channel::check_present(uint64_t sequence, Deadline deadline) {
  return check_behind(sequence, deadline, "before it was needed", "this rank waits for");
}

Status Channel::check_behind(uint64_t sequence, Deadline deadline, const std::string& closed_when,
                             const std::string& late_how) {
  // Who is gone is looked up before how far it came: what it did last counts.
  std::vector<bool> left, dead;
  for (int m = 0; m < size(); ++m) {
    const int rank = members_.world_rank(m);
    left.push_back(transport_.left(rank));
    dead.push_back(!transport_.alive(rank) && !transport_.left(rank));
  }
  const bool late = deadline.passed();
  const std::vector<int> behind = below(sequence, [this](int m) {
    return m == index() ? next_ : blocks_[m].posted.load(std::memory_order_seq_cst);
  });
  for (const int m : behind) {
    const int rank = members_.world_rank(m);
    if (left[static_cast<size_t>(m)]) {
      return fail(Error(MERON_E_PEER_CLOSED,
                        fmt::format("rank {} closed its context {}; it {}", rank, closed_when,
                                    last_call_text(m)),
                        "let all ranks make the same calls before they close")
                      .blaming(rank));
    }
    if (dead[static_cast<size_t>(m)]) {
      return fail(Error(MERON_E_PEER_DEAD,
                        fmt::format("{}; it {}", transport_.obituary(rank), last_call_text(m)),
                        "see its output; `meron run` tells how it ended. Restart the job")
                      .blaming(rank));
    }
  }
  if (late && !behind.empty()) {
    const int rank = members_.world_rank(behind.front());
    return fail(Error(MERON_E_TIMEOUT,
                      fmt::format("{} {}, which did not follow in time; rank {} {}", late_how,
                                  ranks_text(behind), rank, last_call_text(behind.front())),
                      "look what the ranks behind do, or raise the timeout")
                    .blaming(rank));
  }
  return Ok{};
}

Result<uint64_t> Channel::post(const Call& call) {
  MERON_TRY(status());
  // Calls that are no operations are compared here, before their slots are used again.
  if (link_ != nullptr && next_ > 1) MERON_TRY(agreed(next_ - 1));
  const uint64_t sequence = next_;
  CallRecord record;
  record.sequence = sequence;
  record.bytes = call.bytes;
  record.begun_ns = posted_ns_ = now_ns();
  record.operation = static_cast<uint32_t>(call.kind);
  record.fingerprint =
      hash_combine(hash_combine(hash_combine(hash_text(call.subject), call.bytes), call.detail),
                   record.operation);
  copy_text(record.subject, call.subject);

  MemberBlock& mine = own();
  CallSlot& slot = mine.ring[sequence % kRing];
  slot.store(record);
  share(&slot, sizeof(slot));
  announce(mine.posted, sequence);
  ++next_;
  add(counters_.operations, 1);
  if (size() > 1) {
    MERON_TRY(compare(sequence, record.fingerprint, record));
    transport_.ring();
  }
  return sequence;
}

Status Channel::verify(uint64_t sequence) {
  const CallRecord record = own().ring[sequence % kRing].load();
  // A later call has its slot: all members have begun, and compared, what came after this one.
  if (record.sequence != sequence) return status();
  return compare(sequence, record.fingerprint, record);
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

Status Channel::compare(uint64_t sequence, uint64_t fingerprint, const CallRecord& own) {
  for (int m = 0; m < size(); ++m) {
    if (m == index()) continue;
    const MemberBlock& peer = blocks_[m];
    if (peer.posted.load(std::memory_order_seq_cst) < sequence) continue;
    const CallSlot& slot = peer.ring[sequence % kRing];
    if (slot.fingerprint() == fingerprint) continue;
    const CallRecord other = slot.load();
    const int own_rank = transport_.rank();
    const int peer_rank = members_.world_rank(m);
    std::string difference;
    if (difference_ && own.operation == static_cast<uint32_t>(CallKind::open) &&
        other.operation == own.operation) {
      difference = difference_(m);
    } else if (call_text(own) == call_text(other)) {
      difference = "; the names are equal, but arguments that the message does not show differ";
    }
    return fail(Error(MERON_E_MISMATCH,
                      fmt::format("ranks diverge at call {}: rank {} called {}, rank {} called "
                                  "{}{}",
                                  sequence, own_rank, call_text(own), peer_rank, call_text(other),
                                  difference),
                      "let all ranks of a group make the same calls in the same order; "
                      "the context's flight record shows what came before")
                    .during(std::string(name_of(static_cast<CallKind>(own.operation))))
                    .on(own.subject)
                    .blaming(peer_rank));
  }
  return Ok{};
}

Error Channel::fail(const Error& error) {
  if (parent_ != nullptr) return parent_->fail(error);
  if (failed()) return failure();
  FailureRecord& record = own().failure;
  // A record is written once: a peer may be reading it from then on.
  if (!failure_written_) {
    failure_written_ = true;
    const ErrorInfo& info = error.info();
    record.code = info.code;
    record.finder = transport_.rank();
    record.culprit = info.peer;
    copy_text(record.operation, info.operation);
    copy_text(record.subject, info.subject);
    copy_text(record.what, info.what);
    copy_text(record.advice, info.advice);
    const uint32_t claim = static_cast<uint32_t>(index()) + 1;
    uint32_t expected = 0;
    header_->failed.compare_exchange_strong(expected, claim, std::memory_order_seq_cst);
    if (link_ != nullptr) {
      share(&record, sizeof(record));
      link_->claim_word(members_.ranks(), offset_of(&header_->failed), claim);
    }
    transport_.ring();
  }
  return failure();
}

Error Channel::failure() const {
  const uint32_t finder = header_->failed.load(std::memory_order_seq_cst);
  const FailureRecord& record = blocks_[finder - 1].failure;
  ErrorInfo info;
  info.code = record.code;
  info.what = record.what;
  if (record.finder != transport_.rank()) {
    info.what += fmt::format(" (found by rank {})", record.finder);
  }
  info.operation = record.operation;
  info.subject = record.subject;
  info.advice = record.advice;
  info.rank = transport_.rank();
  info.peer = record.culprit;
  return Error(std::move(info));
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

std::string Channel::call_text(const CallRecord& record) {
  std::string text(name_of(static_cast<CallKind>(record.operation)));
  if (record.subject[0] != '\0') text += fmt::format(" of '{}'", record.subject);
  if (record.bytes != 0) text += fmt::format(" ({} bytes)", record.bytes);
  return text;
}

}  // namespace meron

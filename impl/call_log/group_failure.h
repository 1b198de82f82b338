// SPDX-License-Identifier: Apache-2.0
// The sticky error of a group: the first failure that a rank reports is that of all its members.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "call_log/group_control.h"
#include "topology/members.h"
#include "transport/transport.h"

namespace meron {

class GroupFailure {
 public:
  // `link`: null where all members share memory.
  GroupFailure(Transport& transport, const Members& members, Link* link, GroupHeader* header,
               MemberBlock* blocks)
      : transport_(transport), members_(members), link_(link), header_(header), blocks_(blocks) {}

  bool some() const { return header_->failed.load(std::memory_order_relaxed) != 0; }
  Status status() const {
    if (header_->failed.load(std::memory_order_seq_cst) == 0) return Ok{};
    return error();
  }
  // The same for a call that begins now, so for which the failure is an old one: the error says so.
  // `what` is that of the group, in messages.
  Status usable(const char* what) const {
    if (header_->failed.load(std::memory_order_seq_cst) == 0) return Ok{};
    return unusable(what);
  }
  // Breaks the group, unless it is broken already. Returns the error that holds. Under the
  // context's lock.
  Error report(const Error& error);
  // Counts an optimizer step, for messages. Under the context's lock.
  void note_step() { ++steps_; }

 private:
  Error error() const;
  Error unusable(const char* what) const;

  Transport& transport_;
  const Members& members_;
  Link* link_;
  GroupHeader* header_;
  MemberBlock* blocks_;
  bool written_ = false;
  uint32_t steps_ = 0;
};

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
// A rank's membership while ranks meet: some have joined when others may still fail.
#pragma once

#include <utility>

#include "base/result.h"
#include "os/fd.h"
#include "os/mapping.h"
#include "rendezvous/join.h"

namespace meron {

// Maps the head of the window, which takes next to no address space. Unless confirm() is called,
// its end marks the rank as one that has closed its context: ranks that have joined do not wait for
// it.
class Membership {
 public:
  // Of the rank of `options`, in the window whose head that is.
  Membership(const MeetingOptions& options, Mapping head)
      : options_(&options), head_(std::move(head)) {}
  // The same in the window that rank 0 sent, whose head it checks.
  static Result<Membership> attach(const MeetingOptions& options, const UniqueFd& window);
  ~Membership();
  Membership(Membership&&) noexcept = default;
  Membership& operator=(Membership&&) = delete;

  void confirm() { confirmed_ = true; }
  // Marks a rank, by its place in the meeting.
  void mark_left(int rank);

 private:
  const MeetingOptions* options_;
  Mapping head_;  // not valid: moved from
  bool confirmed_ = false;
};

}  // namespace meron

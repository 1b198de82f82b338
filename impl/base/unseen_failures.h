// SPDX-License-Identifier: Apache-2.0
// Failures of operations whose users released them without having seen the error. The log gets each
// of them once, so that none is lost.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace meron {

// Guarded by the context's lock.
class UnseenFailures {
 public:
  // `what` failed: "barrier", "step of 3 units".
  void add(const std::string& what, const Error& error);
  // Every further call on a broken group has its error: it is not unseen.
  void saw_broken_group() {
    broken_.clear();
    knows_ = true;
  }

  bool some() const { return !lines_.empty(); }
  // Lines for the log, at level error.
  std::vector<std::string> take() { return std::exchange(lines_, {}); }
  // At the end of the context: the first failure of a broken group if no call has returned its
  // error, else an empty text.
  std::string take_broken() { return std::exchange(broken_, {}); }

 private:
  std::vector<std::string> lines_;
  std::string broken_;  // empty: none
  bool knows_ = false;
};

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
#include "base/unseen_failures.h"

#include <fmt/format.h>

namespace meron {
namespace {

std::string line_of(const std::string& what, const ErrorInfo& info) {
  const bool named = info.subject.empty() || info.what.find(info.subject) != std::string::npos;
  return fmt::format("{} failed, and its future was released before anyone saw the error: {}{}{}{}",
                     what, named ? "" : info.subject + ": ", info.what,
                     info.advice.empty() ? "" : "; ", info.advice);
}

}  // namespace

void UnseenFailures::add(const std::string& what, const Error& error) {
  const bool broken = error.code() <= MERON_E_TIMEOUT && error.code() > MERON_E_FORKED;
  if (!broken) {
    lines_.push_back(line_of(what, error.info()));
  } else if (!knows_ && broken_.empty()) {
    broken_ = line_of(what, error.info());
  }
}

}  // namespace meron

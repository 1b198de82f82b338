// SPDX-License-Identifier: Apache-2.0
#include "tools/meron/failure.h"

#include <fmt/format.h>

#include <cstring>

namespace meron::tools {

Failure system_failure(const std::string& what, int error) {
  return Failure(fmt::format("{}: {}", what, std::strerror(error)));
}

meron_error** LibraryError::out() {
  meron_error_free(error_);
  error_ = nullptr;
  return &error_;
}

void LibraryError::check(meron_status status, const std::string& subject) const {
  if (status == MERON_OK) return;
  std::string message = meron_error_message(error_);
  if (message.empty()) message = meron_status_name(status);
  throw Failure(subject.empty() ? message : subject + ": " + message);
}

}  // namespace meron::tools

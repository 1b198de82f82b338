// SPDX-License-Identifier: Apache-2.0
#include "os/system_error.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace meron {
namespace {

meron_status status_of(int error) {
  switch (error) {
    case ENOMEM:
    case EMFILE:
    case ENFILE:
      return MERON_E_NO_MEMORY;
    case ENOSPC:
    case EDQUOT:
      return MERON_E_NO_SPACE;
    case ENOENT:
      return MERON_E_NOT_FOUND;
    case ETIMEDOUT:
      return MERON_E_TIMEOUT;
    default:
      return MERON_E_IO;
  }
}

}  // namespace

std::string errno_text(int error) {
  const char* text = ::strerrordesc_np(error);
  const char* name = ::strerrorname_np(error);
  if (text == nullptr || name == nullptr) return fmt::format("error {}", error);
  return fmt::format("{} ({})", text, name);
}

Error system_error(std::string_view what, int error, std::string advice) {
  if (advice.empty() && (error == EMFILE || error == ENFILE)) {
    advice = "raise the limit on open files (ulimit -n)";
  }
  return Error(status_of(error), fmt::format("{}: {}", what, errno_text(error)), std::move(advice));
}

Error memory_error(std::string_view what, int error, std::string advice) {
  if (error != ENOSPC && error != EDQUOT) return system_error(what, error, std::move(advice));
  return Error(MERON_E_NO_MEMORY, fmt::format("{}: {}", what, errno_text(error)),
               std::move(advice));
}

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
// What a function of a module's table reports, on its way to an Error.
#pragma once

#include <fmt/format.h>

#include <cstring>
#include <string>

#include "base/status_name.h"
#include "meron/backend.h"

namespace meron {

inline meron_backend_failure no_failure() {
  meron_backend_failure failure{};
  failure.struct_size = sizeof(failure);
  return failure;
}

inline std::string text_of(const meron_backend_failure& failure, meron_status status) {
  const size_t length = strnlen(failure.text, sizeof(failure.text));
  return length > 0 ? std::string(failure.text, length)
                    : fmt::format("its module says {}", status_name(status));
}

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
// Errors of the engine's folders that the command uses without the library: they become a Failure.
#pragma once

#include <string>
#include <utility>

#include "base/result.h"

namespace meron::tools {

// As people read it: "values-00000-of-00002.safetensors: the file has 3 bytes. Copy it anew."
std::string sentence_of(const Error& error);
// Throws a Failure of that sentence; `subject`, for example the file that was read, begins it.
[[noreturn]] void fail(const Error& error, const std::string& subject = {});

template <class T>
T must(Result<T>&& result, const std::string& subject = {}) {
  if (!result.ok()) fail(result.error(), subject);
  return std::move(result).value();
}
inline void must(const Status& status) {
  if (!status.ok()) fail(status.error());
}

}  // namespace meron::tools

// SPDX-License-Identifier: Apache-2.0
// Containers throw if they find no memory. These functions make an error of it, so that a rank can
// report it to its peers.
#pragma once

#include <new>
#include <string>
#include <utility>

#include "base/result.h"

namespace meron {

Error no_memory_error(std::string operation = {});

// Returns the Result of `body`, or MERON_E_NO_MEMORY if memory runs out in it.
template <class Body>
auto catch_no_memory(Body&& body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return no_memory_error();
  }
}

}  // namespace meron

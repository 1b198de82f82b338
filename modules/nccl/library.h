// SPDX-License-Identifier: Apache-2.0
// The copy of NCCL that this process uses.
#pragma once

#include <string>

#include "meron/backend.h"
#include "modules/nccl/nccl_abi.h"

namespace meron::nccl {

struct Library {
  Functions call{};
  int version = 0;
  std::string version_text;  // "2.28.9"
  std::string path;
  std::string summary;  // "NCCL 2.28.9 at /path"
};

// Finds NCCL: the copy in the process, else the file of MERON_NCCL_LIBRARY, else the loader's. A
// found copy is kept; after a failure, the next call searches again. MERON_E_UNSUPPORTED: there is
// no copy, it is too old, or the process has two; a second one may also be loaded later.
meron_status find_library(const Library** out, meron_backend_failure* failure);

}  // namespace meron::nccl

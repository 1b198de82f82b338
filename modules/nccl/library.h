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

// Finds it: the copy that is in the process, or that which MERON_NCCL_LIBRARY names, or the one
// that the loader finds. Once found it stays; what was not found is looked for again.
// MERON_E_UNSUPPORTED: there is none, it is too old, or there are two in the process, which may
// also come to be so later.
meron_status find_library(const Library** out, meron_backend_failure* failure);

}  // namespace meron::nccl

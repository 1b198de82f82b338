// SPDX-License-Identifier: Apache-2.0
// Failures of NCCL in the form of meron/backend.h.
#pragma once

#include <string>

#include "meron/backend.h"
#include "modules/nccl/nccl_abi.h"

namespace meron::nccl {

// Writes a text to *failure, which may be null; what is too long for it is cut at the end.
void tell(meron_backend_failure* failure, const std::string& text, int code = 0);

meron_status status_of(Result result);

// NCCL's own words for a result: of its kind, and of what happened on this communicator.
std::string words_of(const Functions& call, Result result, NcclComm* comm);

}  // namespace meron::nccl

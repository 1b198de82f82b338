// SPDX-License-Identifier: Apache-2.0
#include "modules/nccl/failure.h"

#include <algorithm>
#include <cstring>

namespace meron::nccl {

void tell(meron_backend_failure* failure, const std::string& text, int code) {
  if (failure == nullptr) return;
  failure->code = code;
  failure->broken = 0;
  failure->reserved_0 = 0;
  const size_t length = std::min(text.size(), sizeof(failure->text) - 1);
  std::memcpy(failure->text, text.data(), length);
  failure->text[length] = '\0';
}

meron_status status_of(Result result) {
  switch (result) {
    case kSuccess:
      return MERON_OK;
    case kInProgress:
      return MERON_IN_PROGRESS;
    case kInvalidArgument:
      return MERON_E_ARGUMENT;
    case kInvalidUsage:
      return MERON_E_UNSUPPORTED;
    case kRemoteError:
      return MERON_E_PEER_DEAD;
    case kTimeout:
      return MERON_E_TIMEOUT;
    default:
      return MERON_E_IO;
  }
}

std::string words_of(const Functions& call, Result result, NcclComm* comm) {
  const char* const kind = call.GetErrorString(result);
  const char* const last = call.GetLastError(comm);
  std::string out = kind == nullptr ? "NCCL gives result " + std::to_string(result) : kind;
  if (last != nullptr && *last != '\0') out += std::string(": ") + last;
  // The caller appends its own text.
  while (!out.empty() && (out.back() == '\n' || out.back() == ' ')) out.pop_back();
  std::replace(out.begin(), out.end(), '\n', ' ');
  return out;
}

}  // namespace meron::nccl

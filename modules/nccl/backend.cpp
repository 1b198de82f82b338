// SPDX-License-Identifier: Apache-2.0
// meron_backend_query: whether there is an NCCL that this process can use, and which.
#include <algorithm>
#include <cstring>
#include <exception>

#include "modules/nccl/library.h"
#include "modules/nccl/table.h"

namespace meron::nccl {
namespace {

meron_status query(meron_backend* out, meron_backend_failure* failure) {
  const Library* found = nullptr;
  if (const meron_status status = find_library(&found, failure); status < 0) return status;
  meron_backend backend = {};
  backend.struct_size = sizeof(backend);
  backend.abi = MERON_BACKEND_ABI;
  backend.version = MERON_VERSION;
  backend.name = "nccl";
  backend.summary = found->summary.c_str();
  backend.collective = &collective_table();
  std::memcpy(out, &backend, std::min<size_t>(out->struct_size, sizeof(backend)));
  return MERON_OK;
}

}  // namespace
}  // namespace meron::nccl

extern "C" MERON_API meron_status meron_backend_query(uint32_t abi, meron_backend* out,
                                                      meron_backend_failure* failure) {
  if (abi != MERON_BACKEND_ABI) return MERON_E_VERSION;
  try {
    return meron::nccl::query(out, failure);
  } catch (const std::exception&) {
    return MERON_E_NO_MEMORY;
  }
}

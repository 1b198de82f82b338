// SPDX-License-Identifier: Apache-2.0
// meron_backend_query: it works everywhere.
#include <algorithm>
#include <cstring>

#include "modules/emulated/device.h"

namespace meron::emulated {
namespace {

meron_status query(meron_backend* out) {
  meron_backend backend{};
  backend.struct_size = sizeof(backend);
  backend.abi = MERON_BACKEND_ABI;
  backend.version = MERON_VERSION;
  backend.name = "emulated";
  backend.summary = "memory of the host, and a thread per stream";
  backend.device = &device_table();
  backend.kernels = &kernel_table();
  backend.collective = &collective_table();
  std::memcpy(out, &backend, std::min<size_t>(out->struct_size, sizeof(backend)));
  return MERON_OK;
}

}  // namespace
}  // namespace meron::emulated

extern "C" MERON_API meron_status meron_backend_query(uint32_t abi, meron_backend* out,
                                                      meron_backend_failure* /*failure*/) {
  return abi == MERON_BACKEND_ABI ? meron::emulated::query(out) : MERON_E_VERSION;
}

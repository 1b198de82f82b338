// SPDX-License-Identifier: Apache-2.0
#include "meron/transport.h"

#include "capi/guard.h"

using namespace meron;        // NOLINT: this file is the C side of that namespace
using namespace meron::capi;  // NOLINT

namespace {

constexpr meron_transport kDefaultTable = MERON_TRANSPORT_INIT;

}  // namespace

extern "C" {

meron_status meron_transport_init(meron_transport* transport, size_t struct_size,
                                  meron_error** err) {
  return guard("transport_init", err,
               [&]() -> Status { return init_options(transport, struct_size, kDefaultTable); });
}

}  // extern "C"

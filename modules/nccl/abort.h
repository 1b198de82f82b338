// SPDX-License-Identifier: Apache-2.0
// Aborts communicators of one device together.
//
// ncclCommAbort also blocks for a communicator of the non-blocking kind, and frees memory, which
// waits for kernels of other communicators on the device. If these wait for a peer, it never
// returns. Within one group of NCCL's, all communicators get the request to stop before any memory
// is freed. A thread makes the calls, so that the caller has a deadline.
#pragma once

#include <vector>

#include "meron/backend.h"
#include "modules/nccl/current_device.h"
#include "modules/nccl/library.h"

namespace meron::nccl {

// Waits at most 5 s, then returns MERON_E_TIMEOUT. `library` stays as long as the process.
meron_status abort_together(const Library& library, const DeviceContext& device,
                            std::vector<NcclComm*> comms, meron_backend_failure* failure);

}  // namespace meron::nccl

// SPDX-License-Identifier: Apache-2.0
// MASTER_PORT of a job.
#pragma once

#include "tools/meron/unique_fd.h"

namespace meron::tools {

// A TCP port at which a rank can listen, kept from other programs while this object lives: the
// kernel gives it to no program that requests any free port.
struct ReservedPort {
  UniqueFd socket;  // bound, and never listens
  int number = 0;   // 0 if the system has no network, or no free port
};

// Reserves a port that no socket of this host uses at any address. A rank binds it with
// SO_REUSEADDR, as torch.distributed's store does.
ReservedPort reserve_port();

}  // namespace meron::tools

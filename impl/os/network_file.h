// SPDX-License-Identifier: Apache-2.0
// Files that several hosts may write, each through a page cache of its own.
#pragma once

#include <string>

#include "base/result.h"
#include "os/fd.h"

namespace meron {

// True if the file's system keeps the hosts' caches coherent for full pages only: NFS, SMB, FUSE.
bool on_network(int fd);

// An existing file, only for writing: no write reads a page first. Refuses a link. `durable`: each
// write has reached the device, or the server, when it returns.
Result<UniqueFd> open_to_write(const std::string& path, bool durable);

}  // namespace meron

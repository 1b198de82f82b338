// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace meron {

// Whether this process is a fork of the one that first called this function. Costs one load, and
// installs no handler: a page that the kernel wipes in children (MADV_WIPEONFORK) tells; where that
// is missing, the process id is compared.
bool is_forked_child();

}  // namespace meron

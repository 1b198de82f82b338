// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace meron {

// Makes a directory that its owner alone may enter, or takes one that is there. Refuses a link, and
// one that others may enter or that is another user's (MERON_E_AUTH): its owner has to be whom the
// file system takes this process for, which over NFS may be another user than here.
Status make_private_directory(const std::string& path);

// The names in it, but for those of hidden files. Asks a network's file system anew, which a look
// for a file by its name may not.
Result<std::vector<std::string>> list_directory(const std::string& path);

// Nothing happens where something is in it.
void remove_empty_directory(const std::string& path);

}  // namespace meron

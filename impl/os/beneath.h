// SPDX-License-Identifier: Apache-2.0
// Files of a directory that may have been downloaded: a name in it never leads out of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "os/directory.h"
#include "os/fd.h"

namespace meron {

struct BeneathFile {
  UniqueFd fd;
  uint64_t bytes = 0;
};

// Opens the regular file of that name, one component, for reading. The directory's own path may go
// through links, the name may not be one. Errors: MERON_E_NOT_FOUND; MERON_E_AUTH for a link or a
// name that leads elsewhere; MERON_E_IO for what is no regular file, which is not waited for.
Result<BeneathFile> open_beneath(const std::string& directory, const std::string& name);

// A directory, open only to find files in it: whatever gets its path, these are the same files.
Result<UniqueFd> open_directory(const std::string& path);
// Another descriptor of the open file. `path` is for messages.
Result<BeneathFile> duplicate(const BeneathFile& file, const std::string& path);

// As open_beneath(path, name) and look_at(path/name), in an open directory. `path` is for messages.
Result<BeneathFile> open_beneath(int directory, const std::string& path, const std::string& name);
Result<std::optional<EntryInfo>> look_beneath(int directory, const std::string& path,
                                              const std::string& name);
// False if the path leads elsewhere by now, or nowhere.
bool leads_to(const std::string& path, int directory);

// The regular file at `path`, for reading; links are followed. Errors as above, but for
// MERON_E_AUTH.
Result<BeneathFile> open_through_links(const std::string& path);

// The content of a file as open_beneath() opens it, of at most `max_bytes` (MERON_E_IO when it is
// longer).
Result<std::string> read_beneath(const std::string& directory, const std::string& name,
                                 size_t max_bytes);

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
// Whole small files and streams, bounded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "os/fd.h"

namespace meron {

// The content of a file of at most `max_bytes` (an error when it is longer). Works for /proc and
// /sys, whose files have no size. A path that does not exist is MERON_E_NOT_FOUND; a pipe, a device
// or a directory is MERON_E_IO, and is not waited for.
Result<std::string> read_file(const std::string& path, size_t max_bytes);

// Writes a new or replaced file, readable by its owner alone.
Status write_file(const std::string& path, std::string_view content);

// The same, so that readers see the old content or the new one and nothing between, also over NFS.
Status replace_file(const std::string& path, std::string_view content);

// A new file, open for reading and writing, with the mode that umask leaves of 0666. Refuses a name
// that is taken, also by a link.
Result<UniqueFd> create_file(const std::string& path);

// Waits until the file's bytes and size are on the device. After a failure the kernel may have
// forgotten what it could not write, and a second attempt may succeed without it: the file must be
// written anew, under another name. `path` is for the error.
Status sync_file(int fd, const std::string& path);

// MERON_E_NO_SPACE if a file of that size is above the process' limit. A process that writes beyond
// its limit on file sizes is ended by a signal.
Status check_size_of_file(uint64_t bytes, const std::string& path);

// A missing one counts as removed.
Status remove_file(const std::string& path);

// Reads `fd` to its end, before `deadline`. Fails if there are more than `max_bytes`. Does not
// close `fd`.
Result<std::string> read_stream(int fd, size_t max_bytes, Deadline deadline);

// The first `bytes` bytes of an open file, which must have them (MERON_E_CORRUPT). `path` is for
// the error.
Result<std::string> read_front(int fd, uint64_t bytes, const std::string& path);

// Reads an open descriptor to its end, or until `enough_bytes` have arrived and no more are ready;
// a file from its start each time. Does not change the descriptor's position and flags.
// `should_stop`, which may be empty, is called while it waits: MERON_E_CANCELLED.
Result<std::string> read_descriptor(int fd, size_t enough_bytes, size_t max_bytes,
                                    Deadline deadline, const std::function<bool()>& should_stop);

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
// A shared mapping of a file, sparse until populated.
//
// Memory must be populated before it is touched: a page that the host cannot provide ends the
// process (SIGBUS or the OOM killer), while populate() returns an error.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "os/fd.h"

namespace meron {

enum class Access { read, read_write };

class Mapping {
 public:
  Mapping() = default;
  Mapping(Mapping&& other) noexcept { *this = std::move(other); }
  Mapping& operator=(Mapping&& other) noexcept;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { unmap(); }

  // Maps the first `bytes` of `fd`, shared, aligned to a huge page. Costs address space only. The
  // mapping keeps the file alive on its own; `fd` may be closed.
  static Result<Mapping> map_file(int fd, size_t bytes, Access access);

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  bool valid() const { return data_ != nullptr; }

  // Gives every page of the range (rounded outward to pages) memory now, in huge pages where the
  // kernel grants them; never changes what pages hold, so that ranges of several threads or
  // processes may touch. Refused with MERON_E_NO_MEMORY when the host, its cgroup or a limit has
  // not enough; pages that were made before the refusal remain. Needs Access::read_write.
  Status populate(size_t offset, size_t bytes);

  // Enters the pages of the range, which have memory, into the page table of this process, so
  // that a first pass over them does not fault. An optimisation: does nothing where unsupported.
  void prefault(size_t offset, size_t bytes) const;

  // Returns the memory of the full pages within the range; they read as zero from now on, in
  // every mapping of the file. Needs Access::read_write.
  Status discard(size_t offset, size_t bytes);

 private:
  Status check_range(size_t offset, size_t bytes, const char* verb) const;
  Status populate_piece(size_t begin, size_t end);
  void unmap();

  std::byte* data_ = nullptr;
  size_t size_ = 0;
  Access access_ = Access::read;
  UniqueFd fd_;
};

}  // namespace meron

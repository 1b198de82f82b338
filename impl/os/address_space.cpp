// SPDX-License-Identifier: Apache-2.0
#include "os/address_space.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstdint>

#include "base/human_bytes.h"
#include "base/layout.h"
#include "os/host.h"
#include "os/system_error.h"

namespace meron {

Result<std::byte*> take_address_space(size_t bytes) {
  // Maps more than needed, to align it, and unmaps the rest.
  const size_t span = bytes + kHugePage;
  void* const space =
      ::mmap(nullptr, span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (space == MAP_FAILED) return no_address_space(bytes, errno);
  auto* const begin = static_cast<std::byte*>(space);
  const auto place = reinterpret_cast<uintptr_t>(space);
  std::byte* const aligned = begin + (round_up(place, kHugePage) - place);
  if (aligned > begin) ::munmap(begin, static_cast<size_t>(aligned - begin));
  std::byte* const end = aligned + bytes;
  if (begin + span > end) ::munmap(end, static_cast<size_t>(begin + span - end));
  return aligned;
}

Error no_address_space(size_t bytes, int error) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    return Error(MERON_E_NO_MEMORY,
                 fmt::format("cannot map {}: the limit on address space is {}", human_bytes(bytes),
                             human_bytes(limit.rlim_cur)),
                 "raise the limit on address space (ulimit -v)");
  }
  return system_error(fmt::format("cannot map {}", human_bytes(bytes)), error,
                      "check vm.max_map_count and vm.overcommit_memory of the host");
}

}  // namespace meron

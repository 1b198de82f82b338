// SPDX-License-Identifier: Apache-2.0
#include "os/random.h"

#include <sys/random.h>

#include <cerrno>

#include "os/system_error.h"

namespace meron {

Status random_bytes(std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t count = ::getrandom(out.data(), out.size(), 0);
    if (count > 0) {
      out = out.subspan(static_cast<size_t>(count));
    } else if (errno != EINTR) {
      return system_error("cannot get random bytes from the kernel", errno);
    }
  }
  return Ok{};
}

bool constant_time_equal(std::span<const std::byte> a, std::span<const std::byte> b) {
  if (a.size() != b.size()) return false;
  // Volatile, so that the compiler cannot leave the loop at the first difference.
  volatile unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference = difference | std::to_integer<unsigned char>(a[i] ^ b[i]);
  }
  return difference == 0;
}

}  // namespace meron

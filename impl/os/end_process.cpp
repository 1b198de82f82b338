// SPDX-License-Identifier: Apache-2.0
#include "os/end_process.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace meron {

void end_process(std::string_view reason) {
  std::fprintf(stderr, "meron: %.*s; this process ends\n", static_cast<int>(reason.size()),
               reason.data());
  std::fflush(stderr);
  _exit(EXIT_FAILURE);
}

}  // namespace meron

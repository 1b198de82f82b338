// SPDX-License-Identifier: Apache-2.0
#include "base/held.h"

#include <cstdio>
#include <cstdlib>

namespace meron {

thread_local Held* Held::here_ = nullptr;

void Held::leave_with_dues() {
  std::vector<std::function<void()>> due;
  due.swap(mutex_.later);
  give_back();
  for (const auto& each : due) each();
  left();
}

#ifdef MERON_LOCK_CHECKS
void expect_unheld(const char* what) {
  if (Held::here() == nullptr) return;
  std::fprintf(stderr, "meron: %s under a context's lock\n", what);
  std::abort();
}
#endif

}  // namespace meron

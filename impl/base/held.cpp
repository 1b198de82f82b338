// SPDX-License-Identifier: Apache-2.0
#include "base/held.h"

#include <cstdio>
#include <cstdlib>

namespace meron {

thread_local Held* Held::here_ = nullptr;

Held::Held(Mutex& mutex, bool quietly) : mutex_(mutex), quietly_(quietly) {
  // One that waits for another while it has it would wait for itself.
  expect_unheld("taking a context's lock");
  enter();
}

Held::Held(Mutex& mutex, IfFree) : mutex_(mutex), quietly_(true) {
  if (here_ != nullptr || !mutex_.mutex.try_lock()) return;
  taken_ = true;
  here_ = this;
}

Held::~Held() {
  if (!taken_) return;
  here_ = nullptr;
  mutex_.mutex.unlock();
}

void Held::enter() {
  mutex_.mutex.lock();
  taken_ = true;
  here_ = this;
}

void Held::leave() {
  std::vector<std::function<void()>> due;
  if (!quietly_ && !mutex_.later.empty()) due.swap(mutex_.later);
  here_ = nullptr;
  taken_ = false;
  mutex_.mutex.unlock();
  for (const auto& each : due) each();
  if (!quietly_) left();
}

#ifdef MERON_LOCK_CHECKS
void expect_unheld(const char* what) {
  if (Held::here() == nullptr) return;
  std::fprintf(stderr, "meron: %s under a context's lock\n", what);
  std::abort();
}
#endif

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
#include "os/threads.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "os/float_mode.h"

namespace meron {

MaskSignalsScope::MaskSignalsScope() {
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &saved_);
}

MaskSignalsScope::~MaskSignalsScope() {
  ::pthread_sigmask(SIG_SETMASK, &saved_, nullptr);
}

void begin_thread(const std::string& name) {
  set_float_mode(kFloatMode);
  ::pthread_setname_np(::pthread_self(), name.substr(0, 15).c_str());
}

void yield_to_other_threads() {
  // A thread's own, on Linux. Not the lowest: one that holds a lock must get on.
  constexpr int kNice = 10;
  (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), kNice);
}

}  // namespace meron

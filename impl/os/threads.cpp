// SPDX-License-Identifier: Apache-2.0
#include "os/threads.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <vector>

#include "os/numa.h"
#include "os/process.h"

namespace meron {

MaskSignalsScope::MaskSignalsScope() {
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &saved_);
}

MaskSignalsScope::~MaskSignalsScope() {
  ::pthread_sigmask(SIG_SETMASK, &saved_, nullptr);
}

void set_thread_name(const std::string& name) {
  ::pthread_setname_np(::pthread_self(), name.substr(0, 15).c_str());
}

void yield_to_other_threads() {
  // A thread's own, on Linux. Not the lowest: one that holds a lock must get on.
  constexpr int kNice = 10;
  (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), kNice);
}

Status pin_thread(int index) {
  const std::vector<int> cpus = allowed_cpus();
  if (cpus.empty() || index < 0) {
    return Error(MERON_E_ARGUMENT, "no CPU to pin the thread to");
  }
  const int cpu = cpus[static_cast<size_t>(index) % cpus.size()];
  return pin_thread_to({cpu});
}

}  // namespace meron

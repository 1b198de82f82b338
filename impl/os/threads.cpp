// SPDX-License-Identifier: Apache-2.0
#include "os/threads.h"

#include <pthread.h>
#include <sched.h>

#include <cerrno>
#include <vector>

#include "os/process.h"
#include "os/system_error.h"

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

Status pin_thread(int index) {
  const std::vector<int> cpus = allowed_cpus();
  if (cpus.empty() || index < 0) {
    return Error(MERON_E_ARGUMENT, "no CPU to pin the thread to");
  }
  const int cpu = cpus[static_cast<size_t>(index) % cpus.size()];
  cpu_set_t* set = CPU_ALLOC(cpu + 1);
  if (set == nullptr) return system_error("cannot pin the thread", ENOMEM);
  const size_t bytes = CPU_ALLOC_SIZE(cpu + 1);
  CPU_ZERO_S(bytes, set);
  CPU_SET_S(cpu, bytes, set);
  const int failed = ::sched_setaffinity(0, bytes, set);
  const int error = errno;
  CPU_FREE(set);
  if (failed) return system_error("cannot pin the thread", error);
  return Ok{};
}

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
#include "modules/nccl/abort.h"

#include <pthread.h>
#include <signal.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "modules/nccl/failure.h"

namespace meron::nccl {
namespace {

constexpr std::chrono::seconds kPatience{5};

bool is_failure(Result result) {
  return result != kSuccess && result != kInProgress;
}

// Of the caller and the thread, which may outlive it.
struct Abort {
  const Functions& call;
  const std::vector<NcclComm*> comms;
  std::mutex mutex;  // guards these
  std::condition_variable ended_changed;
  bool ended = false;
  Result result = kSuccess;
};

// Each communicator is freed, whatever is returned.
Result abort_in_a_group(const Abort& abort) {
  Result result = abort.call.GroupStart();
  const bool grouped = result == kSuccess;
  for (NcclComm* const comm : abort.comms) {
    const Result each = abort.call.CommAbort(comm);
    if (is_failure(each)) result = each;
  }
  const Result ended = grouped ? abort.call.GroupEnd() : kSuccess;
  return is_failure(ended) ? ended : result;
}

// Signals are for the program's own threads.
class MaskedSignals {
 public:
  MaskedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~MaskedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  MaskedSignals(const MaskedSignals&) = delete;
  MaskedSignals& operator=(const MaskedSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

meron_status abort_together(const Library& library, const DeviceContext& device,
                            std::vector<NcclComm*> comms, meron_backend_failure* failure) {
  if (comms.empty()) return MERON_OK;
  const std::string count = std::to_string(comms.size());
  const auto abort = std::make_shared<Abort>(library.call, std::move(comms));
  std::unique_lock lock(abort->mutex);
  {
    const MaskedSignals masked;
    std::thread([abort, &device] {
      const CurrentDevice current(device);  // which lives as long as the caller waits
      const Result result = abort_in_a_group(*abort);
      const std::lock_guard ending(abort->mutex);
      abort->result = result;
      abort->ended = true;
      abort->ended_changed.notify_one();
    }).detach();
  }
  if (!abort->ended_changed.wait_for(lock, kPatience, [&] { return abort->ended; })) {
    tell(failure, "NCCL has not ended " + count + " communicators within " +
                      std::to_string(kPatience.count()) + " s of their abort");
    return MERON_E_TIMEOUT;
  }
  if (!is_failure(abort->result)) return MERON_OK;
  tell(failure, "ncclCommAbort: " + words_of(library.call, abort->result, nullptr), abort->result);
  return status_of(abort->result);
}

}  // namespace meron::nccl

// SPDX-License-Identifier: Apache-2.0
#include "modules/mpi/world.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <thread>

namespace meron::mpi {
namespace {

// How long all cancelled requests of a context together are waited for, and one of them.
constexpr int64_t kPatienceNs = 1'000'000'000;
constexpr int64_t kPatiencePerRequestNs = 100'000'000;
constexpr int64_t kBetweenTestsNs = 50'000;
// idle(): how often MPI may move something before the thread sleeps, and for how long after the end
// of a message the next is near enough not to sleep at all.
constexpr int kRounds = 8;
constexpr int64_t kNearNs = 50'000;

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void sleep_ns(int64_t ns) {
  std::this_thread::sleep_for(std::chrono::nanoseconds(ns));
}

// Failing is an end, too.
bool ends_within(MPI_Request& request, int64_t patience_ns) {
  const int64_t end = now_ns() + patience_ns;
  for (int round = 0;; ++round) {
    int done = 0;
    if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done != 0) return true;
    if (round > 1 && now_ns() >= end) return false;
    sleep_ns(kBetweenTestsNs);
  }
}

}  // namespace

World::World() : patience_ns_(kPatienceNs) {
  const std::lock_guard lock(calls());
  // Not MPI_Comm_dup: the engine's own deadline notices and names a rank that never arrives.
  const int result = MPI_Comm_idup(MPI_COMM_WORLD, &comm_, &making_);
  if (result != MPI_SUCCESS) (void)never_ready(result);
  context_opened();
}

World::~World() {
  {
    const std::lock_guard lock(calls());
    // A context that was not used at all; MPI must not be finalized below a call on all processes.
    if (making_ != MPI_REQUEST_NULL && usable() == MERON_OK && !ends_within(making_, kPatienceNs)) {
      give_up_finalizing();
    }
  }
  context_closed();
}

meron_status World::usable() {
  if (broken_ == MERON_OK && finalized()) {
    broken_ = MERON_E_STATE;
    report("MPI was finalized while a context is open: close contexts before MPI_Finalize");
  }
  return broken_;
}

meron_status World::ready() {
  if (const meron_status status = usable(); status != MERON_OK) return status;
  if (making_ == MPI_REQUEST_NULL) return MERON_OK;
  int done = 0;
  int result = MPI_Test(&making_, &done, MPI_STATUS_IGNORE);
  if (result == MPI_SUCCESS && done == 0) return MERON_IN_PROGRESS;
  // Otherwise what MPI finds wrong would end the process.
  if (result == MPI_SUCCESS) result = MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  return result == MPI_SUCCESS ? MERON_OK : never_ready(result);
}

meron_status World::start(uint64_t* request, bool sends, int peer, uint64_t tag, void* data,
                          uint64_t bytes) {
  const std::lock_guard lock(calls());
  if (const meron_status status = ready(); status != MERON_OK) return status;
  if (bytes > kMostBytes || tag > INT32_MAX) return MERON_E_ARGUMENT;
  if (free_.empty() && !add_slot()) return MERON_E_NO_MEMORY;
  const uint64_t place = free_.back();
  MPI_Request& started = requests_[place];
  const int count = static_cast<int>(bytes), mpi_tag = static_cast<int>(tag);
  const int result = sends ? MPI_Isend(data, count, MPI_BYTE, peer, mpi_tag, comm_, &started)
                           : MPI_Irecv(data, count, MPI_BYTE, peer, mpi_tag, comm_, &started);
  if (result != MPI_SUCCESS) return failed(sends ? "MPI_Isend" : "MPI_Irecv", peer, result);
  slots_[place] = {.bytes = count, .peer = peer, .sends = sends, .asked = looks_};
  *request = place;
  free_.pop_back();
  return MERON_OK;
}

bool World::add_slot() {
  const size_t count = slots_.size() + 1;
  try {
    free_.reserve(count);
    indices_.resize(count);
    statuses_.resize(count);
    requests_.resize(count, MPI_REQUEST_NULL);
    slots_.resize(count);
  } catch (const std::bad_alloc&) {
    return false;
  }
  free_.push_back(count - 1);
  return true;
}

int World::look() {
  ++looks_;
  int count = 0;
  const int result = MPI_Testsome(static_cast<int>(slots_.size()), requests_.data(), &count,
                                  indices_.data(), statuses_.data());
  if (result != MPI_SUCCESS && result != MPI_ERR_IN_STATUS) return result;
  if (count == MPI_UNDEFINED || count == 0) return MPI_SUCCESS;
  last_end_ns_ = now_ns();
  for (int i = 0; i < count; ++i) {
    const auto k = static_cast<size_t>(i);
    Slot& slot = slots_[static_cast<size_t>(indices_[k])];
    slot.ended = true;
    // MPI sets the errors only where it says that there is one.
    if (result == MPI_ERR_IN_STATUS) slot.result = statuses_[k].MPI_ERROR;
    if (slot.result == MPI_SUCCESS && !slot.sends) {
      MPI_Get_count(&statuses_[k], MPI_BYTE, &slot.bytes);
    }
  }
  return MPI_SUCCESS;
}

// The engine asks of each message in turn, and then again: only then MPI is asked, for all.
meron_status World::test(uint64_t request, uint64_t* bytes) {
  const std::lock_guard lock(calls());
  if (const meron_status status = usable(); status != MERON_OK) return status;
  Slot& slot = slots_[request];
  int result = MPI_SUCCESS;
  if (!slot.ended && slot.asked == looks_) result = look();
  slot.asked = looks_;
  if (!slot.ended && result == MPI_SUCCESS) return MERON_IN_PROGRESS;
  if (slot.ended) result = slot.result;
  requests_[request] = MPI_REQUEST_NULL;
  free_.push_back(request);
  if (result != MPI_SUCCESS) {
    int error_class = result;
    MPI_Error_class(result, &error_class);
    // The peer is alive: its message is longer than the receive expects.
    if (error_class == MPI_ERR_TRUNCATE) return MERON_E_MISMATCH;
    return failed("MPI_Testsome", slot.peer, result);
  }
  *bytes = static_cast<uint64_t>(slot.bytes);
  return MERON_OK;
}

// MPI moves messages only while it is called, and a large one by a piece at a time.
void World::idle(int64_t timeout_ns) {
  for (int round = 0; round < kRounds; ++round) {
    {
      const std::lock_guard lock(calls());
      if (usable() != MERON_OK) break;
      // Ignore errors: test() of the message finds and reports them again.
      (void)look();
    }
    std::this_thread::yield();
  }
  if (now_ns() - last_end_ns_ > kNearNs) sleep_ns(std::min(timeout_ns, kBetweenTestsNs));
}

void World::cancel(uint64_t request) {
  const std::lock_guard lock(calls());
  Slot& slot = slots_[request];
  // MPI keeps its state of the request, and the request keeps its slot: one per such message.
  if (usable() != MERON_OK) return;
  MPI_Request& cancelled = requests_[request];
  // MPI cannot cancel a send, nor a receive whose message has begun to arrive.
  if (!slot.ended && !slot.sends) MPI_Cancel(&cancelled);
  const int64_t begin = now_ns();
  const bool ended =
      slot.ended || ends_within(cancelled, std::min(patience_ns_, kPatiencePerRequestNs));
  patience_ns_ -= std::min(patience_ns_, now_ns() - begin);
  if (ended) {
    cancelled = MPI_REQUEST_NULL;
    free_.push_back(request);
  } else if (!slot.sends) {
    // A call of MPI could still write to the memory: this context makes no more calls.
    broken_ = MERON_E_PEER_DEAD;
    give_up_finalizing();
    report("a message from rank " + std::to_string(slot.peer) + " stopped half-way");
  }
}

meron_status World::never_ready(int result) {
  broken_ = MERON_E_PEER_DEAD;
  give_up_finalizing();
  report("MPI_Comm_idup failed: " + error_text(result));
  return MERON_E_PEER_DEAD;
}

// Other ranks are still reachable, at least for an error report.
meron_status World::failed(const char* call, int peer, int result) {
  give_up_finalizing();
  report(std::string(call) + " with rank " + std::to_string(peer) +
         " failed: " + error_text(result));
  return MERON_E_PEER_DEAD;
}

}  // namespace meron::mpi

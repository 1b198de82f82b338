// SPDX-License-Identifier: Apache-2.0
#include "modules/nccl/communicator.h"

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>

#include "modules/nccl/abort.h"
#include "modules/nccl/failure.h"

namespace meron::nccl {
namespace {

using Clock = std::chrono::steady_clock;

// How long to sleep between two looks: at first not at all, for most calls take microseconds.
std::chrono::microseconds pause_after(Clock::duration waited) {
  if (waited < std::chrono::microseconds(200)) return std::chrono::microseconds(0);
  return waited < std::chrono::milliseconds(20) ? std::chrono::microseconds(50)
                                                : std::chrono::milliseconds(1);
}

meron_status refuse(meron_backend_failure* failure, meron_status status, const std::string& text) {
  tell(failure, text);
  return status;
}

// The error of a piece. Empty if it is valid.
std::string fault_of(const meron_exchange_piece& piece, int32_t rank, int32_t size) {
  if (piece.peer < 0 || piece.peer >= size) {
    return "is for rank " + std::to_string(piece.peer) + " of " + std::to_string(size);
  }
  if ((piece.send_bytes > 0 && piece.send == nullptr) ||
      (piece.receive_bytes > 0 && piece.receive == nullptr)) {
    return "has bytes and no pointer to them";
  }
  if (piece.peer == rank && piece.send_bytes != piece.receive_bytes) {
    return "is for the rank itself, and sends " + std::to_string(piece.send_bytes) +
           " bytes but receives " + std::to_string(piece.receive_bytes);
  }
  return {};
}

meron_status check_pieces(const meron_exchange_piece* pieces, uint64_t count, int32_t rank,
                          int32_t size, meron_backend_failure* failure) {
  for (uint64_t i = 0; i < count; ++i) {
    const std::string fault = fault_of(pieces[i], rank, size);
    if (!fault.empty()) {
      return refuse(failure, MERON_E_ARGUMENT, "piece " + std::to_string(i) + " " + fault);
    }
  }
  return MERON_OK;
}

}  // namespace

meron_status Communicator::fail(meron_status status, std::string text, int code,
                                meron_backend_failure* failure) {
  tell(failure, text, code);
  failed_ = status;
  failed_text_ = std::move(text);
  failed_code_ = code;
  return status;
}

meron_status Communicator::fail(Result result, const char* what, meron_backend_failure* failure) {
  std::string text = std::string(what) + ": " + words_of(library_.call, result, comm_);
  if (result == kInvalidUsage && !ready_) {
    text = "do several ranks use one GPU, which NCCL does not do? " + text;
  }
  return fail(status_of(result), std::move(text), result, failure);
}

meron_status Communicator::check_usable(meron_backend_failure* failure) const {
  if (aborted_) return refuse(failure, MERON_E_ABORTED, "the communicator was aborted");
  if (failed_ < 0) {
    tell(failure, failed_text_, failed_code_);
    return failed_;
  }
  if (ready_) return MERON_OK;
  return refuse(failure, MERON_E_STATE,
                "not all ranks have come: ask poll until it says that they have");
}

meron_status Communicator::open(const UniqueId& id, int device, meron_backend_failure* failure) {
  if (const meron_status status = device_.open(device, failure); status < 0) return status;
  Config config;
  config.blocking = 0;
  if (copy_engines_ && library_.version >= kCopyEngineVersion) config.set_policy(kCopyEnginePolicy);
  const Lock lock(mutex_);
  const CurrentDevice current(device_);
  const Result result = library_.call.CommInitRankConfig(&comm_, size_, id, rank_, &config);
  if (result == kSuccess || result == kInProgress) return MERON_OK;
  meron_status status = fail(result, "ncclCommInitRankConfig", failure);
  if (result == kUnhandledCudaError && !device_.is_open()) status = MERON_E_UNSUPPORTED;
  // It is there where the failure was found late.
  if (comm_ != nullptr) (void)library_.call.CommAbort(std::exchange(comm_, nullptr));
  return status;
}

meron_status Communicator::poll(meron_backend_failure* failure) {
  const Lock lock(mutex_);
  if (aborted_ || failed_ < 0) return check_usable(failure);
  Result state = kSuccess;
  Result result = library_.call.CommGetAsyncError(comm_, &state);
  if (result == kSuccess) result = state;
  // Once it is ready, what is in progress is a call of another thread.
  if (result == kInProgress) return ready_ ? MERON_OK : MERON_IN_PROGRESS;
  if (result != kSuccess) {
    return fail(result,
                ready_ ? "NCCL's communicator has failed" : "NCCL's communicator cannot open",
                failure);
  }
  ready_ = true;
  return MERON_OK;
}

meron_status Communicator::settle(Lock& lock, const char* what, meron_backend_failure* failure) {
  const Clock::time_point begin = Clock::now();
  while (true) {
    if (aborted_) return check_usable(failure);
    if (failed_ < 0) return check_usable(failure);  // another thread got it from poll
    Result state = kSuccess;
    Result result = library_.call.CommGetAsyncError(comm_, &state);
    if (result == kSuccess) result = state;
    if (result == kSuccess) return MERON_OK;
    if (result != kInProgress) return fail(result, what, failure);
    const Clock::duration waited = Clock::now() - begin;
    if (waited >= timeout_) {
      return fail(MERON_E_TIMEOUT,
                  std::string(what) + ": still in progress after " +
                      std::to_string(timeout_.count()) +
                      " ms: it waits for peers that have not made the same call",
                  kInProgress, failure);
    }
    lock.unlock();
    const auto pause = pause_after(waited);
    pause.count() == 0 ? std::this_thread::yield() : std::this_thread::sleep_for(pause);
    lock.lock();
  }
}

meron_status Communicator::begin_call(void* stream, meron_backend_failure* failure) {
  {
    const Lock lock(mutex_);
    if (const meron_status status = check_usable(failure); status < 0) return status;
  }
  if (grouping_ && has_stream_ && stream != stream_) {
    return refuse(failure, MERON_E_ARGUMENT, "the group's calls are of another stream");
  }
  stream_ = stream;
  has_stream_ = true;
  return MERON_OK;
}

meron_status Communicator::end_call(meron_backend_failure* failure) {
  return grouping_ ? MERON_OK : launch(failure);
}

meron_status Communicator::all_gather(const void* from, void* to, uint64_t bytes, void* stream,
                                      meron_backend_failure* failure) {
  if (bytes > 0 && (from == nullptr || to == nullptr)) {
    return refuse(failure, MERON_E_ARGUMENT, "an all-gather has bytes and no pointer to them");
  }
  if (const meron_status status = begin_call(stream, failure); status < 0) return status;
  if (bytes > 0) notes_.push_back({Note::gather, from, to, bytes, 0});
  return end_call(failure);
}

meron_status Communicator::exchange(const meron_exchange_piece* pieces, uint64_t count,
                                    void* stream, meron_backend_failure* failure) {
  if (const meron_status status = check_pieces(pieces, count, rank_, size_, failure); status < 0)
    return status;
  if (const meron_status status = begin_call(stream, failure); status < 0) return status;
  for (uint64_t i = 0; i < count; ++i) {
    const meron_exchange_piece& piece = pieces[i];
    // NCCL itself copies what a rank sends to itself within a group.
    if (piece.send_bytes > 0) {
      notes_.push_back({Note::send, piece.send, nullptr, piece.send_bytes, piece.peer});
    }
    if (piece.receive_bytes > 0) {
      notes_.push_back({Note::receive, nullptr, piece.receive, piece.receive_bytes, piece.peer});
    }
  }
  return end_call(failure);
}

meron_status Communicator::begin_group(meron_backend_failure* failure) {
  if (grouping_) return refuse(failure, MERON_E_STATE, "a group is open already");
  const Lock lock(mutex_);
  if (const meron_status status = check_usable(failure); status < 0) return status;
  grouping_ = true;
  return MERON_OK;
}

meron_status Communicator::end_group(meron_backend_failure* failure) {
  if (!grouping_) return refuse(failure, MERON_E_STATE, "no group is open");
  grouping_ = false;
  return launch(failure);
}

Result Communicator::issue(const Note& note) const {
  switch (note.kind) {
    case Note::gather:
      return library_.call.AllGather(note.from, note.to, note.bytes, kUint8, comm_, stream_);
    case Note::send:
      return library_.call.Send(note.from, note.bytes, kUint8, note.peer, comm_, stream_);
    default:
      return library_.call.Recv(note.to, note.bytes, kUint8, note.peer, comm_, stream_);
  }
}

meron_status Communicator::launch(meron_backend_failure* failure) {
  const std::vector<Note> notes = std::exchange(notes_, {});
  has_stream_ = false;
  Lock lock(mutex_);
  if (const meron_status status = check_usable(failure); status < 0) return status;
  if (notes.empty()) return MERON_OK;
  {
    const CurrentDevice current(device_);
    Result result = library_.call.GroupStart();
    if (result != kSuccess) return fail(result, "ncclGroupStart", failure);
    for (const Note& note : notes) {
      result = issue(note);
      if (result != kSuccess && result != kInProgress) break;
    }
    // Also after a failure: the group is the thread's, and would swallow what it calls next.
    const Result ended = library_.call.GroupEnd();
    if (result == kSuccess || result == kInProgress) result = ended;
    if (result != kSuccess && result != kInProgress) {
      return fail(result, "NCCL cannot launch what was asked for", failure);
    }
  }
  return settle(lock, "NCCL cannot launch what was asked for", failure);
}

meron_status Communicator::register_memory(void** registration, void* data, uint64_t bytes,
                                           meron_backend_failure* failure) {
  if (grouping_) {
    return refuse(failure, MERON_E_STATE, "memory is not registered within a group");
  }
  Lock lock(mutex_);
  if (const meron_status status = check_usable(failure); status < 0) return status;
  if (library_.call.CommRegister == nullptr) {
    return refuse(failure, MERON_E_UNSUPPORTED,
                  "NCCL " + library_.version_text + " registers no memory, 2.19 and newer do");
  }
  void* handle = nullptr;
  const CurrentDevice current(device_);
  const Result result = library_.call.CommRegister(comm_, data, bytes, &handle);
  if (result == kInProgress) {
    const meron_status status = settle(lock, "ncclCommRegister", failure);
    if (status < 0) return status;
  } else if (result != kSuccess) {
    // Not an error of the communicator: it continues without the registration.
    tell(failure, "ncclCommRegister: " + words_of(library_.call, result, comm_), result);
    return status_of(result);
  }
  if (handle == nullptr) {
    return refuse(failure, MERON_E_UNSUPPORTED,
                  "NCCL registers no memory here (NCCL_LOCAL_REGISTER=0 says so)");
  }
  *registration = handle;
  return MERON_OK;
}

meron_status Communicator::unregister_memory(void* registration, meron_backend_failure* failure) {
  const Lock lock(mutex_);
  if (comm_ == nullptr) return MERON_OK;
  const CurrentDevice current(device_);
  const Result result = library_.call.CommDeregister(comm_, registration);
  if (result == kSuccess || result == kInProgress) return MERON_OK;
  tell(failure, "ncclCommDeregister: " + words_of(library_.call, result, comm_), result);
  return status_of(result);
}

meron_status Communicator::open_window(void** window, void** data, uint64_t bytes,
                                       meron_backend_failure* failure) {
  if (grouping_) return refuse(failure, MERON_E_STATE, "windows are not opened within a group");
  Lock lock(mutex_);
  if (const meron_status status = check_usable(failure); status < 0) return status;
  if (library_.call.CommWindowRegister == nullptr) {
    return refuse(
        failure, MERON_E_UNSUPPORTED,
        "NCCL " + library_.version_text + " gathers by no copy engines, 2.28 and newer do");
  }
  void* memory = nullptr;
  const CurrentDevice current(device_);
  if (const Result result = library_.call.MemAlloc(&memory, bytes); result != kSuccess) {
    tell(failure,
         "ncclMemAlloc of " + std::to_string(bytes) +
             " bytes: " + words_of(library_.call, result, comm_),
         result);
    return result == kUnhandledCudaError ? MERON_E_NO_MEMORY : status_of(result);
  }
  Window& made = *windows_.emplace_back(std::make_unique<Window>(Window{memory, nullptr}));
  const Result result =
      library_.call.CommWindowRegister(comm_, memory, bytes, &made.handle, kSymmetricWindow);
  meron_status status = MERON_OK;
  if (result == kInProgress) {
    status = settle(lock, "ncclCommWindowRegister", failure);
  } else if (result != kSuccess) {
    status = fail(result, "ncclCommWindowRegister", failure);
  }
  if (status >= 0 && made.handle == nullptr) {
    status = refuse(failure, MERON_E_UNSUPPORTED,
                    "NCCL opens no window between these devices: it needs NVLink between all of "
                    "them, and NCCL_CUMEM_ENABLE");
  }
  // Of one that failed NCCL may still be about to write the handle: it stays until close.
  if (status < 0) return status;
  *data = memory;
  *window = &made;
  return MERON_OK;
}

meron_status Communicator::close_window(void* window, meron_backend_failure* failure) {
  Lock lock(mutex_);
  const auto found = std::find_if(windows_.begin(), windows_.end(),
                                  [&](const auto& each) { return each.get() == window; });
  if (found == windows_.end()) return refuse(failure, MERON_E_ARGUMENT, "this is no window");
  const std::unique_ptr<Window> own = std::move(*found);
  windows_.erase(found);
  const CurrentDevice current(device_);
  meron_status status = MERON_OK;
  if (comm_ != nullptr) {
    const Result result = library_.call.CommWindowDeregister(comm_, own->handle);
    if (result == kInProgress) {
      status = settle(lock, "ncclCommWindowDeregister", failure);
    } else if (result != kSuccess) {
      status = fail(result, "ncclCommWindowDeregister", failure);
    }
  }
  const Result freed = library_.call.MemFree(own->data);
  if (freed == kSuccess || status < 0) return status;
  tell(failure, "ncclMemFree: " + words_of(library_.call, freed, comm_), freed);
  return status_of(freed);
}

meron_status Communicator::abort(std::span<Communicator* const> communicators,
                                 meron_backend_failure* failure) {
  std::vector<NcclComm*> comms;
  for (Communicator* const each : communicators) {
    const Lock lock(each->mutex_);
    each->aborted_ = true;
    if (each->comm_ != nullptr) comms.push_back(std::exchange(each->comm_, nullptr));
  }
  if (comms.empty()) return MERON_OK;
  const Communicator& first = *communicators.front();
  return abort_together(first.library_, first.device_, std::move(comms), failure);
}

meron_status Communicator::finalize(Lock& lock, meron_backend_failure* failure) {
  if (failed_ < 0) return check_usable(failure);
  meron_status status = MERON_OK;
  if (!ready_) status = settle(lock, "NCCL's communicator cannot open", failure);
  if (status < 0) return status;
  const CurrentDevice current(device_);
  const Result result = library_.call.CommFinalize(comm_);
  if (result != kSuccess && result != kInProgress) {
    return fail(result, "ncclCommFinalize", failure);
  }
  return settle(lock, "ncclCommFinalize", failure);
}

meron_status Communicator::end(Lock& lock, meron_backend_failure* failure) {
  if (aborted_) return MERON_OK;
  const meron_status status = finalize(lock, failure);
  if (status < 0) {
    lock.unlock();
    Communicator* const own = this;
    (void)abort(std::span(&own, 1), nullptr);
    lock.lock();
    return status;
  }
  const CurrentDevice current(device_);
  NcclComm* const comm = std::exchange(comm_, nullptr);
  const Result result = library_.call.CommDestroy(comm);
  if (result == kSuccess || result == kInProgress) return MERON_OK;
  tell(failure, "ncclCommDestroy: " + words_of(library_.call, result, nullptr), result);
  return status_of(result);
}

meron_status Communicator::close(meron_backend_failure* failure) {
  Lock lock(mutex_);
  const meron_status status = end(lock, failure);
  const CurrentDevice current(device_);
  for (const auto& window : windows_) (void)library_.call.MemFree(window->data);
  windows_.clear();
  return status;
}

}  // namespace meron::nccl

// SPDX-License-Identifier: Apache-2.0
// One rank of a communicator of NCCL, of the non-blocking kind.
//
// Such a communicator answers calls with "in progress", and must then be asked until that is over
// before anything else is called. Only here is that known: `settle` waits, with a deadline, and
// gives other threads a turn, so that an abort gets through. NCCL's own groups belong to a thread
// and hold communicators: they are begun and ended within one call, from notes, so that none is
// open when an abort takes the communicator away.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "meron/backend.h"
#include "modules/nccl/current_device.h"
#include "modules/nccl/library.h"

namespace meron::nccl {

class Communicator {
 public:
  Communicator(const Library& library, const meron_collective_options& options)
      : library_(library),
        size_(options.size),
        rank_(options.rank),
        timeout_(options.timeout_ms),
        copy_engines_(options.copy_engines != 0) {}
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  // After `open` has succeeded: `close` first.
  ~Communicator() = default;

  meron_status open(const UniqueId& id, int device, meron_backend_failure* failure);
  meron_status poll(meron_backend_failure* failure);
  meron_status all_gather(const void* from, void* to, uint64_t bytes, void* stream,
                          meron_backend_failure* failure);
  meron_status exchange(const meron_exchange_piece* pieces, uint64_t count, void* stream,
                        meron_backend_failure* failure);
  meron_status begin_group(meron_backend_failure* failure);
  meron_status end_group(meron_backend_failure* failure);
  meron_status register_memory(void** registration, void* data, uint64_t bytes,
                               meron_backend_failure* failure);
  meron_status unregister_memory(void* registration, meron_backend_failure* failure);
  meron_status open_window(void** window, void** data, uint64_t bytes,
                           meron_backend_failure* failure);
  meron_status close_window(void* window, meron_backend_failure* failure);
  // Of one device.
  static meron_status abort(std::span<Communicator* const> communicators,
                            meron_backend_failure* failure);
  meron_status close(meron_backend_failure* failure);

 private:
  // A recorded call of NCCL.
  struct Note {
    enum Kind { gather, send, receive } kind;
    const void* from;
    void* to;
    uint64_t bytes;
    int peer;
  };
  // NCCL writes `handle` as late as when the call that opens it is no longer in progress.
  struct Window {
    void* data = nullptr;
    NcclWindow* handle = nullptr;
  };
  using Lock = std::unique_lock<std::mutex>;

  // With mutex_ held, all of these:
  meron_status fail(Result result, const char* what, meron_backend_failure* failure);
  meron_status fail(meron_status status, std::string text, int code,
                    meron_backend_failure* failure);
  // The error that prevents new work; MERON_OK if there is none.
  meron_status check_usable(meron_backend_failure* failure) const;
  // Waits until the last call is no longer in progress. Releases the lock meanwhile.
  meron_status settle(Lock& lock, const char* what, meron_backend_failure* failure);
  Result issue(const Note& note) const;
  meron_status finalize(Lock& lock, meron_backend_failure* failure);
  meron_status end(Lock& lock, meron_backend_failure* failure);

  meron_status begin_call(void* stream, meron_backend_failure* failure);
  meron_status end_call(meron_backend_failure* failure);
  meron_status launch(meron_backend_failure* failure);

  const Library& library_;
  const int size_, rank_;
  const std::chrono::milliseconds timeout_;
  const bool copy_engines_;
  DeviceContext device_;

  std::mutex mutex_;          // guards these; held for every call of NCCL's with comm_
  NcclComm* comm_ = nullptr;  // null: aborted or destroyed
  std::vector<std::unique_ptr<Window>> windows_;  // their memory goes with close at the latest
  bool ready_ = false, aborted_ = false;
  meron_status failed_ = MERON_OK;  // the first failure, and its description
  std::string failed_text_;
  int failed_code_ = 0;

  // Of the one thread that asks for work.
  bool grouping_ = false, has_stream_ = false;
  void* stream_ = nullptr;  // of the notes, where has_stream_
  std::vector<Note> notes_;
};

}  // namespace meron::nccl

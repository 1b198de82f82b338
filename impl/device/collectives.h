// SPDX-License-Identifier: Apache-2.0
// Collectives between devices, over the table of a module: NCCL's, or those of the emulated device.
// include/meron/backend.h says what each function waits for and what ranks must keep to.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>

#include "base/result.h"
#include "meron/backend.h"

namespace meron {

class DeviceCollectives;
class DeviceCommunicator;

// The name of a communicator: made by one rank, handed to the others over the host.
using CommunicatorId = std::array<std::byte, MERON_COLLECTIVE_ID_BYTES>;

// Memory that is registered with the library while this object lives. Holds the communicator.
class DeviceRegistration {
 public:
  DeviceRegistration() = default;
  DeviceRegistration(std::shared_ptr<DeviceCommunicator> communicator, void* registration)
      : communicator_(std::move(communicator)), registration_(registration) {}
  ~DeviceRegistration() { reset(); }
  DeviceRegistration(DeviceRegistration&& other) noexcept
      : communicator_(std::move(other.communicator_)),
        registration_(std::exchange(other.registration_, nullptr)) {}
  DeviceRegistration& operator=(DeviceRegistration&& other) noexcept;

  explicit operator bool() const { return communicator_ != nullptr; }
  void reset();

 private:
  std::shared_ptr<DeviceCommunicator> communicator_;
  void* registration_ = nullptr;
};

// Memory in a window of a communicator. Destroy it when no work uses it on any rank.
class DeviceWindow {
 public:
  DeviceWindow() = default;
  DeviceWindow(std::shared_ptr<DeviceCommunicator> communicator, void* window, std::byte* data,
               uint64_t bytes)
      : communicator_(std::move(communicator)), window_(window), data_(data), bytes_(bytes) {}
  ~DeviceWindow() { reset(); }
  DeviceWindow(DeviceWindow&& other) noexcept
      : communicator_(std::move(other.communicator_)),
        window_(std::exchange(other.window_, nullptr)),
        data_(other.data_),
        bytes_(other.bytes_) {}
  DeviceWindow& operator=(DeviceWindow&& other) noexcept;

  explicit operator bool() const { return communicator_ != nullptr; }
  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  void reset();

 private:
  std::shared_ptr<DeviceCommunicator> communicator_;
  void* window_ = nullptr;
  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
};

// One rank of a communicator. One thread at a time uses it; ready and abort are for any thread at
// any time. Errors name the library and the rank, and quote the library's message.
class DeviceCommunicator : public std::enable_shared_from_this<DeviceCommunicator> {
 public:
  // One that was not closed is aborted: work that waits for a peer does not outlive it.
  ~DeviceCommunicator();
  DeviceCommunicator(const DeviceCommunicator&) = delete;
  DeviceCommunicator& operator=(const DeviceCommunicator&) = delete;

  int size() const { return size_; }
  int rank() const { return rank_; }

  // True once all ranks have arrived; never waits. An error if anything has failed, at any time.
  Result<bool> ready() const;

  Status all_gather(const void* from, void* to, uint64_t bytes, void* stream) const;
  Status exchange(std::span<const meron_exchange_piece> pieces, void* stream) const;
  // Calls between these two form one launch.
  Status begin_group() const;
  Status end_group() const;

  // MERON_E_UNSUPPORTED: the library does without.
  Result<DeviceRegistration> register_memory(void* data, uint64_t bytes);

  // Collective; waits for all ranks. After an error the caller aborts the communicator.
  Result<DeviceWindow> open_window(uint64_t bytes);

  // Of one device, together. MERON_E_TIMEOUT: the library has not stopped after 5 s, and the device
  // is lost to this process.
  static Status abort(std::span<const std::shared_ptr<DeviceCommunicator>> communicators);
  Status abort();
  // Waits until the work of all ranks is done, and ends it; everything but abort is MERON_E_CLOSED
  // from then on.
  Status close();

 private:
  friend class DeviceCollectives;
  friend class DeviceRegistration;
  friend class DeviceWindow;
  DeviceCommunicator(std::shared_ptr<const DeviceCollectives> library, void* handle, int size,
                     int rank);
  Status check(meron_status status, const meron_backend_failure& failure, const char* what) const;

  const std::shared_ptr<const DeviceCollectives> library_;
  const int size_, rank_;
  // Guards handle_ against the close of another thread, which takes it away: ready holds it while
  // it uses the handle, and close waits until no abort does.
  mutable std::mutex mutex_;
  std::condition_variable aborts_ended_;
  int aborts_ = 0;
  void* handle_;  // null: closed
};

class DeviceCollectives : public std::enable_shared_from_this<DeviceCollectives> {
 public:
  // `table` outlives it.
  static Result<std::shared_ptr<const DeviceCollectives>> open(std::string kind,
                                                               const meron_collective_table& table);

  const std::string& kind() const { return kind_; }        // "nccl"
  const std::string& version() const { return version_; }  // "2.28.9"
  uint32_t number() const { return number_; }              // 22809 for it; 0: there is none
  const std::string& path() const { return path_; }        // that it was loaded from; may be empty
  std::string name() const;                                // "nccl 2.28.9 at /path"

  Result<CommunicatorId> create_id() const;
  // Begins to open a communicator. Its ready() returns true once all ranks have arrived. `timeout`:
  // longest wait of each of its calls. Device -1: the calling thread's current one. `copy_engines`:
  // use these where possible.
  Result<std::shared_ptr<DeviceCommunicator>> begin(const CommunicatorId& id, int size, int rank,
                                                    int32_t device,
                                                    std::chrono::milliseconds timeout,
                                                    bool copy_engines = false) const;

 private:
  friend class DeviceCommunicator;
  friend class DeviceRegistration;
  friend class DeviceWindow;
  DeviceCollectives(std::string kind, const meron_collective_table& table);

  const std::string kind_;
  const meron_collective_table& table_;
  std::string version_, path_;
  uint32_t number_ = 0;
};

}  // namespace meron

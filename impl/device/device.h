// SPDX-License-Identifier: Apache-2.0
// A device that was opened: memory, streams, events and copies, over the table of its module.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/dtype.h"
#include "base/result.h"
#include "meron/backend.h"

namespace meron {

class Device;

// Known events of one stream. They complete in the order of their recording.
class StreamEvents {
 public:
  // Returns the number of the next one.
  uint64_t record();
  // True if it is complete, false if it was not a moment ago, nothing if only the device can tell.
  std::optional<bool> known(uint64_t number) const;
  void note(uint64_t number, bool come);

 private:
  mutable std::mutex mutex_;  // a leaf
  uint64_t recorded_ = 0;
  uint64_t come_ = 0;          // it and those before are complete
  uint64_t awaited_ = 0;       // it and those behind were not complete
  int64_t look_again_ns_ = 0;  // time of the next query for these
};

// An event of a stream, or empty if there is nothing to wait for.
class DeviceEvent {
 public:
  DeviceEvent() = default;
  DeviceEvent(std::shared_ptr<Device> device, void* event)
      : device_(std::move(device)), event_(event) {}
  ~DeviceEvent() { reset(); }
  DeviceEvent(DeviceEvent&& other) noexcept
      : device_(std::move(other.device_)),
        event_(std::exchange(other.event_, nullptr)),
        stream_(other.stream_),
        number_(other.number_) {}
  DeviceEvent& operator=(DeviceEvent&& other) noexcept;

  explicit operator bool() const { return event_ != nullptr; }
  void* get() const { return event_; }
  // True once it is complete; never waits. The device is not asked if an event of the same stream
  // gives the answer, or a moment after it answered no.
  Result<bool> come() const;
  void reset();

 private:
  friend class Device;
  std::shared_ptr<Device> device_;
  void* event_ = nullptr;
  StreamEvents* stream_ = nullptr;  // where it was recorded
  uint64_t number_ = 0;             // among the events of that stream
};

// A stream of the engine's own.
class DeviceStream {
 public:
  DeviceStream() = default;
  DeviceStream(std::shared_ptr<Device> device, void* stream)
      : device_(std::move(device)), stream_(stream) {}
  ~DeviceStream() { reset(); }
  DeviceStream(DeviceStream&& other) noexcept
      : device_(std::move(other.device_)), stream_(std::exchange(other.stream_, nullptr)) {}
  DeviceStream& operator=(DeviceStream&& other) noexcept;

  void* get() const { return stream_; }
  void reset();

 private:
  std::shared_ptr<Device> device_;
  void* stream_ = nullptr;
};

// Owner of device memory, which takes it at its release.
class DeviceMemoryOwner {
 public:
  virtual ~DeviceMemoryOwner() = default;
  // In the order of `stream`'s work.
  virtual void release(void* data, uint64_t bytes, void* stream) = 0;
};

// Memory of the device, released in the order of `stream`'s work: work queued on that stream before
// may use it. Before the release, users on other streams make `stream` wait for their work.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(std::shared_ptr<DeviceMemoryOwner> owner, std::byte* data, uint64_t bytes,
               void* stream)
      : owner_(std::move(owner)), data_(data), bytes_(bytes), stream_(stream) {}
  ~DeviceMemory() { reset(); }
  DeviceMemory(DeviceMemory&& other) noexcept
      : owner_(std::move(other.owner_)),
        data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        stream_(other.stream_) {}
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;

  explicit operator bool() const { return data_ != nullptr; }
  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  void reset();
  // Releases it in the order of another stream's work, if the device can do that.
  void give_back_on(void* stream) { stream_ = stream; }

 private:
  std::shared_ptr<DeviceMemoryOwner> owner_;
  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
  void* stream_ = nullptr;
};

// Memory of the host that the device can access itself while this object lives.
class PinnedRange {
 public:
  PinnedRange() = default;
  PinnedRange(std::shared_ptr<Device> device, std::byte* data)
      : device_(std::move(device)), data_(data) {}
  ~PinnedRange() { reset(); }
  PinnedRange(PinnedRange&& other) noexcept
      : device_(std::move(other.device_)), data_(std::exchange(other.data_, nullptr)) {}
  PinnedRange& operator=(PinnedRange&& other) noexcept;

  explicit operator bool() const { return data_ != nullptr; }
  void reset();

 private:
  std::shared_ptr<Device> device_;
  std::byte* data_ = nullptr;
};

// The trainer's own allocator of device memory, for example a framework's cache. Any thread may
// call either function. allocate() returns null on failure.
struct DeviceAllocator {
  std::function<void*(uint64_t bytes, void* stream)> allocate;
  std::function<void(void* data, uint64_t bytes, void* stream)> release;
};

class Device final : public DeviceMemoryOwner, public std::enable_shared_from_this<Device> {
 public:
  // `table` outlives it. Index -1: the calling thread's current device.
  static Result<std::shared_ptr<Device>> open(std::string kind, const meron_device_table& table,
                                              int32_t index, DeviceAllocator allocator = {},
                                              const meron_kernel_table* kernels = nullptr);
  ~Device() override;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const meron_device_info& info() const { return info_; }
  const std::string& kind() const { return kind_; }  // "cuda"
  std::string name() const;                          // "cuda:0 (NVIDIA H200)"
  Result<uint64_t> free_bytes() const;

  // MERON_E_NO_MEMORY, with figures, if there is too little: nothing else has changed then. Calls a
  // trainer's allocator in a Recess; it gets memory back when the lock is released.
  Result<DeviceMemory> allocate(uint64_t bytes, void* stream, const std::string& what);
  // True if memory may be freed on a stream other than the one that allocated it. A trainer's
  // allocator only knows the stream of the allocation.
  bool releases_on_any_stream() const { return !allocator_.release; }
  // Empty, with the reason in *refused (unless null), if the range cannot be pinned. Copies then
  // work, but slower.
  PinnedRange pin(std::byte* data, uint64_t bytes, std::string* refused);
  // MERON_E_ARGUMENT where it is memory of another device; else whether it is this one's.
  Result<bool> holds(const void* data, const std::string& what) const;

  Result<DeviceStream> create_stream(bool urgent);
  // That work may be asked of it: MERON_E_ARGUMENT, MERON_E_STATE.
  Status check_stream(void* stream) const;
  // Waits for all work queued on it so far; in a Recess.
  Status synchronize(void* stream) const;
  // Records an event behind the work queued on `stream` so far. `again`: an unused event to reuse.
  Result<DeviceEvent> record(void* stream, DeviceEvent again = {});
  // Work queued on `stream` from now on waits for the event, if there is one.
  Status wait(void* stream, const DeviceEvent& event) const;
  // A thread of the device calls `notify(user)` when the stream has done the work queued so far.
  Status notify(void* stream, meron_device_notify_fn notify, void* user) const;

  Status copy(void* to, const void* from, uint64_t bytes, void* stream) const;
  Status fill(void* to, uint8_t value, uint64_t bytes, void* stream) const;

  // The arithmetic of meron_kernel_table, for a module that has it (all of Meron's have).
  Status reduce(float* out, bool accumulate, std::span<const void* const> in, DType dtype,
                float scale, uint64_t elements, std::byte* squares, void* stream) const;
  Status cast(std::span<const meron_cast_task> tasks, DType to, DType from, bool add,
              void* stream) const;
  Status update(const meron_update_step& step, std::span<const meron_update_task> tasks,
                meron_state_type states, DType out, void* stream) const;
  Status encode(const meron_quant_format& format, std::span<const meron_encode_task> tasks,
                DType in, float beta, void* stream) const;
  Status decode(const meron_quant_format& format, std::span<const meron_cast_task> tasks, DType to,
                void* stream) const;
  Status reduce_encoded(const meron_quant_format& format, float* out, bool accumulate,
                        std::span<const void* const> in, float scale, uint64_t elements,
                        std::byte* squares, void* stream) const;

 private:
  friend class DeviceEvent;
  friend class DeviceStream;
  friend class PinnedRange;
  Device(std::string kind, const meron_device_table& table, void* handle, DeviceAllocator allocator,
         const meron_kernel_table* kernels);
  Status check(meron_status status, const meron_backend_failure& failure, const char* what) const;
  void release(void* data, uint64_t bytes, void* stream) override;

  const std::string kind_;
  const meron_device_table& table_;
  const meron_kernel_table* const kernels_;
  void* const handle_;
  const DeviceAllocator allocator_;
  meron_device_info info_{};
  std::mutex recording_;  // guards streams_; held while an event is recorded, so that numbers
                          // have the order of the stream
  std::map<void*, StreamEvents> streams_;
};

}  // namespace meron

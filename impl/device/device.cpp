// SPDX-License-Identifier: Apache-2.0
#include "device/device.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/clock.h"
#include "base/held.h"
#include "base/human_bytes.h"
#include "device/failure.h"

namespace meron {
namespace {

// To ask takes longer than most of what is waited for, and keeps other threads from the device.
constexpr int64_t kLookAgainNs = 10'000;

}  // namespace

uint64_t StreamEvents::record() {
  const std::lock_guard lock(mutex_);
  return ++recorded_;
}

std::optional<bool> StreamEvents::known(uint64_t number) const {
  const std::lock_guard lock(mutex_);
  if (number <= come_) return true;
  if (number >= awaited_ && now_ns() < look_again_ns_) return false;
  return {};
}

void StreamEvents::note(uint64_t number, bool come) {
  const std::lock_guard lock(mutex_);
  if (come) {
    come_ = std::max(come_, number);
    return;
  }
  awaited_ = number;
  look_again_ns_ = now_ns() + kLookAgainNs;
}

DeviceEvent& DeviceEvent::operator=(DeviceEvent&& other) noexcept {
  if (this == &other) return *this;
  reset();
  device_ = std::move(other.device_);
  event_ = std::exchange(other.event_, nullptr);
  stream_ = other.stream_;
  number_ = other.number_;
  return *this;
}

void DeviceEvent::reset() {
  if (event_ == nullptr) return;
  device_->table_.event_destroy(device_->handle_, std::exchange(event_, nullptr));
  device_.reset();
}

Result<bool> DeviceEvent::come() const {
  if (event_ == nullptr) return true;
  if (const std::optional<bool> known = stream_->known(number_)) return *known;
  meron_backend_failure failure = no_failure();
  const meron_status status = device_->table_.event_query(device_->handle_, event_, &failure);
  MERON_TRY(device_->check(status, failure, "work that was asked of it failed"));
  stream_->note(number_, status != MERON_IN_PROGRESS);
  return status != MERON_IN_PROGRESS;
}

DeviceStream& DeviceStream::operator=(DeviceStream&& other) noexcept {
  if (this == &other) return *this;
  reset();
  device_ = std::move(other.device_);
  stream_ = std::exchange(other.stream_, nullptr);
  return *this;
}

void DeviceStream::reset() {
  if (stream_ == nullptr) return;
  device_->table_.stream_destroy(device_->handle_, std::exchange(stream_, nullptr));
  device_.reset();
}

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  if (this == &other) return *this;
  reset();
  owner_ = std::move(other.owner_);
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  stream_ = other.stream_;
  return *this;
}

void DeviceMemory::reset() {
  if (data_ == nullptr) return;
  owner_->release(std::exchange(data_, nullptr), std::exchange(bytes_, 0), stream_);
  owner_.reset();
}

PinnedRange& PinnedRange::operator=(PinnedRange&& other) noexcept {
  if (this == &other) return *this;
  reset();
  device_ = std::move(other.device_);
  data_ = std::exchange(other.data_, nullptr);
  return *this;
}

void PinnedRange::reset() {
  if (data_ == nullptr) return;
  expect_unheld("unpinning memory");
  device_->table_.unpin(device_->handle_, std::exchange(data_, nullptr));
  device_.reset();
}

Device::Device(std::string kind, const meron_device_table& table, void* handle,
               DeviceAllocator allocator, const meron_kernel_table* kernels)
    : kind_(std::move(kind)),
      table_(table),
      kernels_(kernels),
      handle_(handle),
      allocator_(std::move(allocator)) {}

Device::~Device() {
  table_.close(handle_);
}

Result<std::shared_ptr<Device>> Device::open(std::string kind, const meron_device_table& table,
                                             int32_t index, DeviceAllocator allocator,
                                             const meron_kernel_table* kernels) {
  meron_backend_failure failure = no_failure();
  int32_t count = 0;
  meron_status status = table.count(&count, &failure);
  if (status < 0 || count == 0) {
    return Error(MERON_E_UNSUPPORTED,
                 status < 0 ? fmt::format("the devices of kind {} cannot be counted: {}", kind,
                                          text_of(failure, status))
                            : fmt::format("there is no device of kind {}", kind),
                 "see `meron info`; CUDA_VISIBLE_DEVICES may hide devices");
  }
  if (index < -1 || index >= count) {
    return Error(MERON_E_ARGUMENT,
                 fmt::format("there is no device {}:{}: this process has {}", kind, index,
                             count == 1 ? "one, number 0" : fmt::format("{}, from 0 on", count)),
                 "name one of these");
  }
  void* handle = nullptr;
  status = table.open(&handle, index, &failure);
  if (status < 0) {
    return Error(
        status,
        fmt::format("device {}:{} cannot be opened: {}", kind, index, text_of(failure, status)),
        failure.broken != 0 ? "end the process and look at the device (nvidia-smi)"
                            : "see `meron info`");
  }
  std::shared_ptr<Device> device(
      new Device(std::move(kind), table, handle, std::move(allocator), kernels));
  device->info_.struct_size = sizeof(meron_device_info);
  status = table.describe(&device->info_, handle, &failure);
  MERON_TRY(device->check(status, failure, "it cannot be described"));
  return device;
}

std::string Device::name() const {
  return fmt::format("{}:{} ({})", kind_, info_.index, info_.name);
}

Status Device::check(meron_status status, const meron_backend_failure& failure,
                     const char* what) const {
  if (status >= 0) return Ok{};
  if (failure.broken != 0) {
    return Error(
        MERON_E_DEVICE,
        fmt::format("device {} has failed: {}: {}", name(), what, text_of(failure, status)),
        "nothing can be done with it any more in this process: end all ranks, look at the "
        "device (its driver's log), and go on from a checkpoint");
  }
  return Error(status, fmt::format("device {}: {}: {}", name(), what, text_of(failure, status)));
}

Result<uint64_t> Device::free_bytes() const {
  meron_backend_failure failure = no_failure();
  meron_device_info now{};
  now.struct_size = sizeof(now);
  MERON_TRY(check(table_.describe(&now, handle_, &failure), failure, "it cannot be described"));
  return now.free_bytes;
}

Result<DeviceMemory> Device::allocate(uint64_t bytes, void* stream, const std::string& what) {
  if (bytes == 0) bytes = 1;  // what is empty has a place too
  meron_backend_failure failure = no_failure();
  void* data = nullptr;
  meron_status status = MERON_OK;
  if (allocator_.allocate) {
    const Recess recess;
    data = allocator_.allocate(bytes, stream);
    if (data == nullptr) status = MERON_E_NO_MEMORY;
  } else {
    status = table_.allocate(&data, handle_, bytes, stream, &failure);
  }
  if (status != MERON_E_NO_MEMORY) {
    MERON_TRY(check(status, failure, "memory cannot be allocated"));
    return DeviceMemory(shared_from_this(), static_cast<std::byte*>(data), bytes, stream);
  }
  const auto free = free_bytes();
  return Error(MERON_E_NO_MEMORY,
               fmt::format("device {} has no {} for {}{}{}", name(), human_bytes(bytes), what,
                           free.ok() ? fmt::format(": {} of {} are free", human_bytes(*free),
                                                   human_bytes(info_.memory_bytes))
                                     : std::string(),
                           allocator_.allocate ? " (asked of the trainer's allocator)" : ""),
               "hold fewer units at a time, or let the plan move states to the host");
}

void Device::release(void* data, uint64_t bytes, void* stream) {
  if (allocator_.release) {
    const auto give_back = [device = shared_from_this(), data, bytes, stream] {
      expect_unheld("a call of the allocator");
      device->allocator_.release(data, bytes, stream);
    };
    if (Held* const held = Held::here(); held != nullptr) return held->later(give_back);
    return give_back();
  }
  // If the release fails, a failed device keeps the memory. A destructor cannot report it.
  (void)table_.release(handle_, data, stream, nullptr);
}

PinnedRange Device::pin(std::byte* data, uint64_t bytes, std::string* refused) {
  if (bytes == 0) return {};
  expect_unheld("pinning memory");
  meron_backend_failure failure = no_failure();
  const meron_status status = table_.pin(handle_, data, bytes, &failure);
  if (status >= 0) return PinnedRange(shared_from_this(), data);
  if (refused != nullptr) *refused = text_of(failure, status);
  return {};
}

Result<bool> Device::holds(const void* data, const std::string& what) const {
  meron_backend_failure failure = no_failure();
  meron_memory_kind memory = MERON_MEMORY_HOST;
  int32_t index = -1;
  MERON_TRY(check(table_.locate(&memory, &index, handle_, data, &failure), failure,
                  "it cannot say where memory lies"));
  if (memory != MERON_MEMORY_DEVICE) return memory == MERON_MEMORY_MANAGED;
  if (index == info_.index) return true;
  return Error(MERON_E_ARGUMENT,
               fmt::format("{} lies on device {}:{}, and this rank computes on {}", what, kind_,
                           index, name()),
               "give memory of the rank's own device")
      .on(what);
}

Result<DeviceStream> Device::create_stream(bool urgent) {
  meron_backend_failure failure = no_failure();
  void* stream = nullptr;
  MERON_TRY(check(table_.stream_create(&stream, handle_, urgent ? 1 : 0, &failure), failure,
                  "a stream cannot be made"));
  return DeviceStream(shared_from_this(), stream);
}

Status Device::check_stream(void* stream) const {
  meron_backend_failure failure = no_failure();
  return check(table_.stream_check(handle_, stream, &failure), failure,
               "the stream cannot be used");
}

Status Device::synchronize(void* stream) const {
  const Recess recess;
  meron_backend_failure failure = no_failure();
  return check(table_.stream_synchronize(handle_, stream, &failure), failure,
               "work that was asked of it failed");
}

Result<DeviceEvent> Device::record(void* stream, DeviceEvent again) {
  meron_backend_failure failure = no_failure();
  if (!again) {
    void* event = nullptr;
    MERON_TRY(
        check(table_.event_create(&event, handle_, &failure), failure, "an event cannot be made"));
    again = DeviceEvent(shared_from_this(), event);
  }
  const std::lock_guard in_order(recording_);
  MERON_TRY(check(table_.event_record(handle_, again.get(), stream, &failure), failure,
                  "an event cannot be recorded"));
  again.stream_ = &streams_[stream];
  again.number_ = again.stream_->record();
  return again;
}

Status Device::wait(void* stream, const DeviceEvent& event) const {
  if (!event) return Ok{};
  meron_backend_failure failure = no_failure();
  return check(table_.stream_wait(handle_, stream, event.get(), &failure), failure,
               "a stream cannot be made to wait");
}

Status Device::notify(void* stream, meron_device_notify_fn notify, void* user) const {
  meron_backend_failure failure = no_failure();
  return check(table_.stream_notify(handle_, stream, notify, user, &failure), failure,
               "it cannot tell when work is done");
}

Status Device::copy(void* to, const void* from, uint64_t bytes, void* stream) const {
  if (bytes == 0) return Ok{};
  meron_backend_failure failure = no_failure();
  return check(table_.copy(handle_, to, from, bytes, stream, &failure), failure,
               "a copy cannot be asked for");
}

Status Device::fill(void* to, uint8_t value, uint64_t bytes, void* stream) const {
  if (bytes == 0) return Ok{};
  meron_backend_failure failure = no_failure();
  return check(table_.fill(handle_, to, value, bytes, stream, &failure), failure,
               "memory cannot be filled");
}

namespace {

constexpr const char* kNoKernel = "a kernel cannot be launched";

}  // namespace

Status Device::reduce(float* out, bool accumulate, std::span<const void* const> in, DType dtype,
                      float scale, uint64_t elements, std::byte* squares, void* stream) const {
  if (elements == 0) return Ok{};
  meron_backend_failure failure = no_failure();
  return check(kernels_->reduce(handle_, out, accumulate ? 1 : 0, in.data(),
                                static_cast<uint32_t>(in.size()), static_cast<meron_dtype>(dtype),
                                scale, elements, squares, stream, &failure),
               failure, kNoKernel);
}

Status Device::cast(std::span<const meron_cast_task> tasks, DType to, DType from, bool add,
                    void* stream) const {
  if (tasks.empty()) return Ok{};
  meron_backend_failure failure = no_failure();
  return check(kernels_->cast(handle_, tasks.data(), static_cast<uint32_t>(tasks.size()),
                              static_cast<meron_dtype>(to), static_cast<meron_dtype>(from),
                              add ? 1 : 0, stream, &failure),
               failure, kNoKernel);
}

Status Device::update(const meron_update_step& step, std::span<const meron_update_task> tasks,
                      meron_state_type states, DType out, void* stream) const {
  if (tasks.empty()) return Ok{};
  meron_backend_failure failure = no_failure();
  return check(kernels_->update(handle_, &step, tasks.data(), static_cast<uint32_t>(tasks.size()),
                                states, static_cast<meron_dtype>(out), stream, &failure),
               failure, kNoKernel);
}

Status Device::encode(const meron_quant_format& format, std::span<const meron_encode_task> tasks,
                      DType in, float beta, void* stream) const {
  if (tasks.empty()) return Ok{};
  meron_backend_failure failure = no_failure();
  return check(kernels_->encode(handle_, &format, tasks.data(), static_cast<uint32_t>(tasks.size()),
                                static_cast<meron_dtype>(in), beta, stream, &failure),
               failure, kNoKernel);
}

Status Device::decode(const meron_quant_format& format, std::span<const meron_cast_task> tasks,
                      DType to, void* stream) const {
  if (tasks.empty()) return Ok{};
  meron_backend_failure failure = no_failure();
  return check(kernels_->decode(handle_, &format, tasks.data(), static_cast<uint32_t>(tasks.size()),
                                static_cast<meron_dtype>(to), stream, &failure),
               failure, kNoKernel);
}

Status Device::reduce_encoded(const meron_quant_format& format, float* out, bool accumulate,
                              std::span<const void* const> in, float scale, uint64_t elements,
                              std::byte* squares, void* stream) const {
  if (elements == 0) return Ok{};
  meron_backend_failure failure = no_failure();
  return check(kernels_->reduce_encoded(handle_, &format, out, accumulate ? 1 : 0, in.data(),
                                        static_cast<uint32_t>(in.size()), scale, elements, squares,
                                        stream, &failure),
               failure, kNoKernel);
}

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
#include "device/collectives.h"

#include <fmt/format.h>

#include <vector>

#include "base/held.h"
#include "device/failure.h"

namespace meron {
namespace {

Error closed_error(const std::string& kind) {
  return Error(MERON_E_CLOSED, fmt::format("the communicator of {} was closed", kind),
               "open another one");
}

std::string advice_for(meron_status status) {
  switch (status) {
    case MERON_E_TIMEOUT:
      return "see which ranks have not made the same call; NCCL_DEBUG=INFO shows what NCCL waits "
             "for";
    case MERON_E_PEER_DEAD:
    case MERON_E_IO:
      return "end all ranks and go on from a checkpoint; NCCL_DEBUG=INFO shows what NCCL does";
    case MERON_E_UNSUPPORTED:
      return "see `meron info`";
    default:
      return {};
  }
}

}  // namespace

DeviceRegistration& DeviceRegistration::operator=(DeviceRegistration&& other) noexcept {
  if (this == &other) return *this;
  reset();
  communicator_ = std::move(other.communicator_);
  registration_ = std::exchange(other.registration_, nullptr);
  return *this;
}

void DeviceRegistration::reset() {
  if (communicator_ == nullptr) return;
  const Recess recess;  // no launch uses the memory any more
  {
    const std::lock_guard lock(communicator_->mutex_);
    // Closing a communicator ends its registrations. Its next call reports a failure.
    if (communicator_->handle_ != nullptr) {
      (void)communicator_->library_->table_.unregister_memory(communicator_->handle_, registration_,
                                                              nullptr);
    }
  }
  registration_ = nullptr;
  communicator_.reset();
}

DeviceWindow& DeviceWindow::operator=(DeviceWindow&& other) noexcept {
  if (this == &other) return *this;
  reset();
  communicator_ = std::move(other.communicator_);
  window_ = std::exchange(other.window_, nullptr);
  data_ = other.data_;
  bytes_ = other.bytes_;
  return *this;
}

void DeviceWindow::reset() {
  if (communicator_ == nullptr) return;
  {
    const std::lock_guard lock(communicator_->mutex_);
    // Closing a communicator closes its windows. Its next call reports a failure.
    if (communicator_->handle_ != nullptr) {
      (void)communicator_->library_->table_.window_close(communicator_->handle_, window_, nullptr);
    }
  }
  window_ = nullptr;
  communicator_.reset();
}

DeviceCommunicator::DeviceCommunicator(std::shared_ptr<const DeviceCollectives> library,
                                       void* handle, int size, int rank)
    : library_(std::move(library)), size_(size), rank_(rank), handle_(handle) {}

DeviceCommunicator::~DeviceCommunicator() {
  if (handle_ == nullptr) return;
  (void)library_->table_.abort(&handle_, 1, nullptr);
  (void)library_->table_.close(handle_, nullptr);
}

Status DeviceCommunicator::check(meron_status status, const meron_backend_failure& failure,
                                 const char* what) const {
  if (status >= 0) return Ok{};
  std::string text = fmt::format("{}, rank {} of {}: {}: {}", library_->kind(), rank_, size_, what,
                                 text_of(failure, status));
  if (failure.broken != 0) {
    return Error(MERON_E_DEVICE, std::move(text),
                 "nothing can be done with the device any more in this process: end all ranks, and "
                 "go on from a checkpoint");
  }
  return Error(status, std::move(text), advice_for(status));
}

Result<bool> DeviceCommunicator::ready() const {
  const std::lock_guard lock(mutex_);
  if (handle_ == nullptr) return closed_error(library_->kind());
  meron_backend_failure failure = no_failure();
  const meron_status status = library_->table_.poll(handle_, &failure);
  MERON_TRY(check(status, failure, "the communicator has failed"));
  return status == MERON_OK;
}

// The calls of the one thread that uses it need no lock: it is also the one that closes.
Status DeviceCommunicator::all_gather(const void* from, void* to, uint64_t bytes,
                                      void* stream) const {
  expect_unheld("a launch of devices' collectives");
  if (handle_ == nullptr) return closed_error(library_->kind());
  meron_backend_failure failure = no_failure();
  return check(library_->table_.all_gather(handle_, from, to, bytes, stream, &failure), failure,
               "an all-gather cannot be asked for");
}

Status DeviceCommunicator::exchange(std::span<const meron_exchange_piece> pieces,
                                    void* stream) const {
  expect_unheld("a launch of devices' collectives");
  if (handle_ == nullptr) return closed_error(library_->kind());
  meron_backend_failure failure = no_failure();
  return check(library_->table_.exchange(handle_, pieces.data(), pieces.size(), stream, &failure),
               failure, "an exchange cannot be asked for");
}

Status DeviceCommunicator::begin_group() const {
  expect_unheld("a group of launches");
  if (handle_ == nullptr) return closed_error(library_->kind());
  meron_backend_failure failure = no_failure();
  return check(library_->table_.group_begin(handle_, &failure), failure, "a group cannot begin");
}

Status DeviceCommunicator::end_group() const {
  expect_unheld("a launch of devices' collectives");
  if (handle_ == nullptr) return closed_error(library_->kind());
  meron_backend_failure failure = no_failure();
  return check(library_->table_.group_end(handle_, &failure), failure,
               "a group cannot be launched");
}

Result<DeviceRegistration> DeviceCommunicator::register_memory(void* data, uint64_t bytes) {
  expect_unheld("a registration of memory");
  if (handle_ == nullptr) return closed_error(library_->kind());
  meron_backend_failure failure = no_failure();
  void* registration = nullptr;
  MERON_TRY(check(library_->table_.register_memory(&registration, handle_, data, bytes, &failure),
                  failure, "memory cannot be registered"));
  return DeviceRegistration(shared_from_this(), registration);
}

Result<DeviceWindow> DeviceCommunicator::open_window(uint64_t bytes) {
  if (handle_ == nullptr) return closed_error(library_->kind());
  meron_backend_failure failure = no_failure();
  void* window = nullptr;
  void* data = nullptr;
  MERON_TRY(check(library_->table_.window_open(&window, &data, handle_, bytes, &failure), failure,
                  "a window cannot be opened"));
  return DeviceWindow(shared_from_this(), window, static_cast<std::byte*>(data), bytes);
}

Status DeviceCommunicator::abort(
    std::span<const std::shared_ptr<DeviceCommunicator>> communicators) {
  expect_unheld("an abort of devices' collectives");
  std::vector<void*> handles;
  std::vector<DeviceCommunicator*> open;
  for (const auto& each : communicators) {
    const std::lock_guard lock(each->mutex_);
    if (each->handle_ == nullptr) continue;
    ++each->aborts_;
    handles.push_back(each->handle_);
    open.push_back(each.get());
  }
  if (open.empty()) return Ok{};
  meron_backend_failure failure = no_failure();
  const meron_status status =
      open.front()->library_->table_.abort(handles.data(), handles.size(), &failure);
  for (DeviceCommunicator* const each : open) {
    const std::lock_guard lock(each->mutex_);
    --each->aborts_;
    each->aborts_ended_.notify_all();
  }
  return open.front()->check(status, failure, "it cannot be aborted");
}

Status DeviceCommunicator::abort() {
  const std::shared_ptr<DeviceCommunicator> own = shared_from_this();
  return abort(std::span(&own, 1));
}

Status DeviceCommunicator::close() {
  void* handle = nullptr;
  {
    std::unique_lock lock(mutex_);
    aborts_ended_.wait(lock, [this] { return aborts_ == 0; });
    handle = std::exchange(handle_, nullptr);
  }
  if (handle == nullptr) return Ok{};
  meron_backend_failure failure = no_failure();
  return check(library_->table_.close(handle, &failure), failure,
               "the communicator did not end well");
}

DeviceCollectives::DeviceCollectives(std::string kind, const meron_collective_table& table)
    : kind_(std::move(kind)), table_(table) {}

Result<std::shared_ptr<const DeviceCollectives>> DeviceCollectives::open(
    std::string kind, const meron_collective_table& table) {
  meron_collective_library library{};
  library.struct_size = sizeof(library);
  meron_backend_failure failure = no_failure();
  const meron_status status = table.version(&library, &failure);
  if (status < 0) {
    return Error(
        status, fmt::format("the library of {} cannot be used: {}", kind, text_of(failure, status)),
        "see `meron info`");
  }
  std::shared_ptr<DeviceCollectives> made(new DeviceCollectives(std::move(kind), table));
  made->version_ = library.text;
  made->number_ = library.version;
  made->path_ = library.path;
  return std::shared_ptr<const DeviceCollectives>(std::move(made));
}

std::string DeviceCollectives::name() const {
  return path_.empty() ? fmt::format("{} {}", kind_, version_)
                       : fmt::format("{} {} at {}", kind_, version_, path_);
}

Result<CommunicatorId> DeviceCollectives::create_id() const {
  CommunicatorId id{};
  meron_backend_failure failure = no_failure();
  const meron_status status = table_.unique_id(id.data(), &failure);
  if (status >= 0) return id;
  return Error(status,
               fmt::format("{} cannot name a communicator: {}", kind_, text_of(failure, status)),
               advice_for(status));
}

Result<std::shared_ptr<DeviceCommunicator>> DeviceCollectives::begin(
    const CommunicatorId& id, int size, int rank, int32_t device, std::chrono::milliseconds timeout,
    bool copy_engines) const {
  meron_collective_options options{};
  options.struct_size = sizeof(options);
  options.size = size;
  options.rank = rank;
  options.device_index = device;
  options.timeout_ms = timeout.count();
  options.copy_engines = copy_engines ? 1 : 0;
  meron_backend_failure failure = no_failure();
  void* handle = nullptr;
  const meron_status status = table_.open(&handle, id.data(), &options, &failure);
  if (status >= 0) {
    return std::shared_ptr<DeviceCommunicator>(
        new DeviceCommunicator(shared_from_this(), handle, size, rank));
  }
  return Error(status,
               fmt::format("{}, rank {} of {}: the communicator cannot be opened: {}", kind_, rank,
                           size, text_of(failure, status)),
               advice_for(status))
      .at(rank);
}

}  // namespace meron

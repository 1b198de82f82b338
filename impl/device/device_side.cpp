// SPDX-License-Identifier: Apache-2.0
#include "device/device_side.h"

#include <fmt/format.h>

#include "base/held.h"
#include "base/human_bytes.h"
#include "os/host.h"

namespace meron {

Result<std::unique_ptr<DeviceSide>> DeviceSide::create(std::shared_ptr<Device> device,
                                                       Transport& transport) {
  // Urgent, because later work waits for the gathered values.
  MERON_ASSIGN(DeviceStream up, device->create_stream(true));
  MERON_ASSIGN(DeviceStream down, device->create_stream(false));
  MERON_ASSIGN(DeviceStream work, device->create_stream(false));
  std::unique_ptr<DeviceSide> side(new DeviceSide(std::move(device), transport, std::move(up),
                                                  std::move(down), std::move(work)));
  transport.before_sleep([made = side.get()] { made->ask_to_be_woken(); });
  return side;
}

DeviceSide::~DeviceSide() {
  transport_.before_sleep({});
  synchronize();
}

// Either the thread that is about to sleep sees the mark, or this sees that it sleeps.
Status DeviceSide::wake_after(void* stream) {
  std::atomic<bool>& asked = stream == up()     ? up_asked_
                             : stream == down() ? down_asked_
                                                : work_asked_;
  asked.store(true, std::memory_order_seq_cst);
  if (!transport_.sleeps() || !asked.exchange(false)) return Ok{};
  return wake_right_after(stream);
}

// A failed device cannot wake anyone: sleeping threads check its work from time to time.
void DeviceSide::ask_to_be_woken() {
  if (up_asked_.exchange(false)) (void)wake_right_after(up());
  if (down_asked_.exchange(false)) (void)wake_right_after(down());
  if (work_asked_.exchange(false)) (void)wake_right_after(work());
}

Status DeviceSide::wake_right_after(void* stream) {
  return device_->notify(
      stream, [](void* user) { static_cast<Transport*>(user)->ring(); }, &transport_);
}

void DeviceSide::pin(std::byte* data, uint64_t bytes, std::string* notice) {
  // Whole pages: those of a buffer are no other's.
  const uint64_t page = page_size();
  const uint64_t before = reinterpret_cast<uintptr_t>(data) % page;
  std::string refused;
  const Recess recess;
  PinnedRange range =
      device_->pin(data - before, (before + bytes + page - 1) / page * page, &refused);
  const std::lock_guard lock(pinned_mutex_);
  if (range) {
    pinned_.insert_or_assign(data, std::move(range));
  } else if (!std::exchange(told_unpinned_, true) && !refused.empty()) {
    *notice = fmt::format(
        "{} of host memory cannot be pinned for device {}: {}; copies to and from it are slower. "
        "Raising the limit of locked memory may help (ulimit -l)",
        human_bytes(bytes), device_->name(), refused);
  }
}

void DeviceSide::unpin(std::byte* data) {
  std::map<const std::byte*, PinnedRange>::node_type gone;
  {
    const std::lock_guard lock(pinned_mutex_);
    gone = pinned_.extract(data);
  }
  if (gone.empty()) return;
  const Recess recess;
  gone.mapped().reset();
}

void DeviceSide::synchronize() {
  // A device that has failed does nothing any more.
  (void)device_->synchronize(up_.get());
  (void)device_->synchronize(down_.get());
  (void)device_->synchronize(work_.get());
}

}  // namespace meron

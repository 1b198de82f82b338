// SPDX-License-Identifier: Apache-2.0
#include "device/gather_window.h"

#include <utility>

namespace meron {
namespace {

// As libraries of collectives like it, and whole lines of any cache.
constexpr uint64_t kAlignment = 4096;

}  // namespace

GatherWindow::GatherWindow(std::shared_ptr<Device> device, void* up, DeviceWindow window)
    : device_(std::move(device)), up_(up), window_(std::move(window)), free_(window_.bytes()) {}

Result<std::optional<DeviceMemory>> GatherWindow::take(uint64_t bytes) {
  std::optional<DeviceMemory> room;
  if (!window_ || bytes == 0) return room;
  const std::optional<uint64_t> begin = free_.allocate(bytes, kAlignment);
  if (!begin) return room;
  room.emplace(shared_from_this(), window_.data() + *begin, bytes, up_);
  for (size_t i = 0; i < released_.size();) {
    Released& each = released_[i];
    MERON_ASSIGN(const bool come, each.used.come());
    if (!come && each.begin < *begin + bytes && *begin < each.end) {
      MERON_TRY(device_->wait(up_, each.used));
    }
    if (come || (each.begin >= *begin && each.end <= *begin + bytes)) {
      std::swap(each, released_.back());
      released_.pop_back();
    } else {
      ++i;
    }
  }
  return room;
}

std::optional<uint64_t> GatherWindow::place_of(const std::byte* data) const {
  if (!window_ || data < window_.data() || data >= window_.data() + window_.bytes()) return {};
  return static_cast<uint64_t>(data - window_.data());
}

void GatherWindow::release(void* data, uint64_t bytes, void* stream) {
  const auto place = place_of(static_cast<std::byte*>(data));
  if (!place) return;  // it was closed
  (void)free_.free(*place);
  if (stream == up_) return;
  auto used = device_->record(stream);
  // A device that has failed writes nothing there any more.
  if (used.ok()) released_.push_back({*place, *place + bytes, std::move(*used)});
}

void GatherWindow::close() {
  if (!window_) return;
  // Streams that compute may still be reading. Those of a failed device are not.
  for (const Released& each : released_) (void)device_->wait(up_, each.used);
  if (!released_.empty()) (void)device_->synchronize(up_);
  released_.clear();
  window_.reset();
}

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
// One direction of the link between the host and a device: pinned memory here, memory there, and
// a stream of its own, through the engine's device layer.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "device/device.h"
#include "os/host.h"
#include "os/mapping.h"
#include "os/memory_file.h"

namespace meron::bench {

inline constexpr int kSkipped = 77;

template <class T>
T take(Result<T> result) {
  if (!result.ok()) {
    const ErrorInfo& info = result.error().info();
    throw std::runtime_error(fmt::format("{}. {}", info.what, info.advice));
  }
  return std::move(result).value();
}

// Only full pages can be pinned.
inline uint64_t whole_pages(uint64_t bytes) {
  return (bytes + page_size() - 1) / page_size() * page_size();
}

class Way {
 public:
  Way(Device& device, bool up, uint64_t bytes)
      : device_(device),
        up_(up),
        bytes_(whole_pages(bytes)),
        file_(take(MemoryFile::create("link", bytes_))),
        host_(take(Mapping::map_file(file_.fd(), bytes_, Access::read_write))),
        stream_(take(device.create_stream(false))),
        memory_(take(device.allocate(bytes_, stream_.get(), "a direction of the link"))) {
    take(host_.populate(0, bytes_));
    std::memset(host_.data(), 1, bytes_);
    std::string refused;
    pinned_ = device.pin(host_.data(), bytes_, &refused);
    if (!pinned_) throw std::runtime_error("memory of the host cannot be pinned: " + refused);
  }

  uint64_t bytes() const { return bytes_; }
  // All of it, in copies of `chunk` bytes.
  void ask(uint64_t chunk) {
    for (uint64_t at = 0; at < bytes_; at += chunk) {
      const uint64_t size = std::min(chunk, bytes_ - at);
      std::byte* const here = host_.data() + at;
      std::byte* const there = memory_.data() + at;
      take(device_.copy(up_ ? there : here, up_ ? here : there, size, stream_.get()));
    }
  }
  void finish() { take(device_.synchronize(stream_.get())); }

 private:
  Device& device_;
  const bool up_;
  const uint64_t bytes_;
  MemoryFile file_;
  Mapping host_;
  DeviceStream stream_;
  DeviceMemory memory_;
  PinnedRange pinned_;
};

inline double seconds_of(const std::function<void()>& work) {
  const int64_t begin = now_ns();
  work();
  return static_cast<double>(now_ns() - begin) * 1e-9;
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace meron::bench

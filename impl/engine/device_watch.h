// SPDX-License-Identifier: Apache-2.0
// Looks after what devices were asked to exchange. A peer that never joins would hold this rank's
// streams, and with them a trainer that waits for its device outside of Meron, for good: the group
// is broken instead, with the culprit's name, and the streams are released.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

namespace meron {

class Context;

class DeviceWatch {
 public:
  // The context outlives it.
  explicit DeviceWatch(Context& context);
  ~DeviceWatch();
  DeviceWatch(const DeviceWatch&) = delete;
  DeviceWatch& operator=(const DeviceWatch&) = delete;

 private:
  void run();

  Context& context_;
  std::mutex mutex_;  // guards stop_
  std::condition_variable stopped_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace meron

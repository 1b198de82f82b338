// SPDX-License-Identifier: Apache-2.0
// What a context is opened with.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/log.h"
#include "device/device.h"
#include "meron/transport.h"
#include "plan/plan.h"

namespace meron {

// How its ranks find each other, and how bytes move between them.
struct JoinOptions {
  int rank = -1;  // -1, and of the others what is empty: as the environment says
  int world_size = -1;
  std::string transport = "auto";
  std::optional<meron_transport> custom;
  std::string job;
  const char* token = nullptr;
};

struct OpenOptions {
  JoinOptions join;
  int64_t timeout_ns = 0;
  uint64_t host_memory_limit = 0;
  uint64_t arena_reserve = 0;
  int threads = 0;
  Plan plan;
  LogSink log;
  std::function<bool()> should_stop;
  std::string device;  // empty: none
  DeviceAllocator allocator;
};

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
// What all devices of the process share, and what MERON_EMULATED_DEVICE makes of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>

#include "meron/backend.h"

namespace meron::emulated {

class Stream;

struct Settings {
  uint64_t count = 1, memory = uint64_t{1} << 30, delay = 0, break_at = 0, fail_at = 0, alone = 0,
           collectives = 1, shared = 0, pins = 1, strict = 0, windows = 1, registers = 1, block = 0;
  static constexpr uint64_t kDemanded = 2;  // of `registers`
};

struct Machine {
  std::mutex mutex;  // guards all below
  std::string text;  // that `settings` were read from
  Settings settings;
  uint64_t operations = 0;   // copies, fills, kernels and launches of collectives so far
  uint64_t collectives = 0;  // launches of collectives so far, of all ranks
  struct Block {
    uint64_t bytes;
    int32_t device;
  };
  std::map<const std::byte*, Block> blocks;
  std::map<const std::byte*, uint64_t> pinned;  // bytes
  std::map<int32_t, uint64_t> used;             // bytes, by device
  std::set<int32_t> broken;
  std::set<const Stream*> streams;
};

Machine& machine();

// Writes a text to *failure, which may be null.
void say(meron_backend_failure* failure, std::string_view text, bool broken = false);

// Reads the settings anew if they have changed; MERON_E_ARGUMENT.
meron_status load_settings(meron_backend_failure* failure);

bool is_broken(int32_t index);
meron_status say_broken(meron_backend_failure* failure);

// Takes as long as the settings have calls take that pin, register or launch. Not under a mutex.
void block_caller();

// Does work of a stream, unless the device is, or gets, broken: then it returns false.
bool work_on(int32_t index, const std::function<void()>& work);

}  // namespace meron::emulated

// SPDX-License-Identifier: Apache-2.0
// Decides if a library of collectives can join the devices of a group's ranks. Every rank publishes
// a card (device_joining.cpp), and all reach the same result from the same cards.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "meron/backend.h"
#include "plan/plan.h"

namespace meron {

// A rank's description of its device. Plain bytes, because it is in the shared segment.
struct DeviceCard {
  enum State : uint32_t { unknown = 0, usable = 1, refused = 2 };
  uint32_t state = unknown;          // refused: `reason` says why
  uint32_t version = 0;              // of the library; comparable
  uint64_t free_bytes = UINT64_MAX;  // of the device
  std::array<char, 16> kind{};
  std::array<char, 32> library{};  // its version, as text
  std::array<char, 32> bus{};
  std::array<char, 64> name{};  // of the device
  std::array<char, 232> reason{};
  std::array<char, 128> unregistered{};  // why the library registers none of its memory
  // Of the communicators of each axis (DeviceAxis), by its first rank: for values, for gradients.
  std::array<std::array<std::array<std::byte, MERON_COLLECTIVE_ID_BYTES>, 2>, 2> ids{};
};
static_assert(sizeof(DeviceCard) % 8 == 0);

template <size_t N>
std::string_view text_of(const std::array<char, N>& text) {
  return {text.data(), strnlen(text.data(), N)};
}

template <size_t N>
void put_text(std::array<char, N>& to, std::string_view text) {
  to.fill('\0');
  std::memcpy(to.data(), text.data(), std::min(text.size(), N - 1));
}

// A rank as messages name it, and its host.
struct DevicePlace {
  int rank = 0;
  int node = 0;
};

struct DeviceVerdict {
  bool joins = false;
  std::string reason;          // why not
  std::optional<Error> error;  // if the group cannot be made
  std::string notice;          // a warning; the group is made
  bool registers = false;      // values are registered, on all ranks
  uint64_t window = 0;         // bytes of the window that all ranks have, or are to open; 0: none
};

// Of all ranks of a group, in their order.
DeviceVerdict judge_devices(std::span<const DeviceCard> cards, std::span<const DevicePlace> places,
                            const Plan& plan);

}  // namespace meron

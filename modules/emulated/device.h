// SPDX-License-Identifier: Apache-2.0
// Common functions of the emulated device's tables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "meron/backend.h"
#include "modules/emulated/stream.h"

namespace meron::emulated {

const meron_device_table& device_table();
const meron_kernel_table& kernel_table();
const meron_collective_table& collective_table();

// Of a device, by its handle: a stream, the default one for null; whether the device still works.
Stream& stream_of(void* device, void* stream);
meron_status state_of(void* device, meron_backend_failure* failure);
// Allocates memory of a device, filled with garbage. Valid until free_block; null if the device is
// full.
std::byte* allocate_block(int32_t device, uint64_t bytes);
// Frees a block. No stream may still use it.
void free_block(std::byte* data);
// Work that a stream is to do in its turn, unless the device has broken until then.
meron_status ask(void* device, void* stream, std::function<void()> work,
                 meron_backend_failure* failure);

}  // namespace meron::emulated

// SPDX-License-Identifier: Apache-2.0
// Views of tensors, as the C ABI shows them.
#pragma once

#include "engine/engine.h"
#include "meron/param.h"

namespace meron::capi {

// `device`: whose memory it is; null: the host's.
inline meron_view make_view(const void* data, const Range& part, DType dtype, bool writable,
                            const Device* device = nullptr) {
  meron_view view{};
  view.data = const_cast<void*>(data);
  view.count = part.size();
  view.offset = part.begin;
  view.dtype = static_cast<meron_dtype>(dtype);
  view.writable = writable ? 1 : 0;
  view.device = device != nullptr ? device->info().index : MERON_DEVICE_HOST;
  return view;
}

// Of a whole tensor of a gather.
inline meron_view make_view(const Param& param, const FullTensor& tensor, bool writable) {
  const DeviceSide* const side = tensor.on_device ? param.unit->rank().device.get() : nullptr;
  return make_view(tensor.data, {0, param.count}, param.desc.dtype, writable,
                   side != nullptr ? &side->device() : nullptr);
}

}  // namespace meron::capi

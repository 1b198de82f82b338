// SPDX-License-Identifier: Apache-2.0
// DLPack 1.x's exchange struct, as https://dmlc.github.io/dlpack defines it: the header itself is
// not needed for a struct that never changes within a major version.
#pragma once

#include <cstdint>

extern "C" {

struct DLPackVersion {
  uint32_t major, minor;
};
struct DLDevice {
  int32_t device_type, device_id;  // 1: CPU
};
struct DLDataType {
  uint8_t code, bits;  // code 2: float, 4: bfloat
  uint16_t lanes;
};
struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t *shape, *strides;
  uint64_t byte_offset;
};
struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);
  uint64_t flags;  // 1: read-only
  DLTensor dl_tensor;
};

}  // extern "C"

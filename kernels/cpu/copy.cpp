// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/copy.h"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/copy.cpp"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace meron::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// `to` is aligned to kLine and `bytes` a multiple of it.
void stream_target(uint8_t* to, const uint8_t* from, size_t bytes) {
#if HWY_TARGET == HWY_SCALAR
  std::memcpy(to, from, bytes);
#else
  const hn::CappedTag<uint8_t, 64> d;
  const size_t lanes = hn::Lanes(d);
  for (size_t i = 0; i < bytes; i += lanes) hn::Stream(hn::LoadU(d, from + i), d, to + i);
  hwy::FlushStream();
#endif
}

}  // namespace meron::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meron::kernels {

HWY_EXPORT(stream_target);

void copy(void* dst, const void* src, size_t bytes) {
  if (bytes >= kStreamCopyBytes) return hand_over(dst, src, bytes);
  if (bytes != 0) std::memcpy(dst, src, bytes);
}

void hand_over(void* dst, const void* src, size_t bytes) {
  if (bytes == 0) return;
  auto* to = static_cast<uint8_t*>(dst);
  const auto* from = static_cast<const uint8_t*>(src);
  const size_t head = std::min(bytes, (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine);
  const size_t body = (bytes - head) / kLine * kLine;
  std::memcpy(to, from, head);
  HWY_DYNAMIC_DISPATCH(stream_target)(to + head, from + head, body);
  std::memcpy(to + head + body, from + head + body, bytes - head - body);
}

}  // namespace meron::kernels
#endif

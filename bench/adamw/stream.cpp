// SPDX-License-Identifier: Apache-2.0
#include "stream.h"

#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/adamw/stream.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace meron::bench::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// `nothing` is zero, which the compiler does not know: each value that is written then needs the
// loads, and is the one that was read.
void stream_target(float* p, const float* g, float* m, float* v, size_t n, uint32_t nothing) {
  const hn::CappedTag<float, 16> d;
  const size_t lanes = hn::Lanes(d);
  const auto mask = hn::BitCast(d, hn::Set(hn::RebindToUnsigned<decltype(d)>(), nothing));
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto masked = hn::And(hn::LoadU(d, g + i), mask);
    const auto first = hn::Or(hn::LoadU(d, m + i), masked);
    const auto second = hn::Or(hn::LoadU(d, v + i), masked);
    const auto param = hn::Or(hn::LoadU(d, p + i), masked);
    hn::StoreU(first, d, m + i);
    hn::StoreU(second, d, v + i);
    hn::StoreU(param, d, p + i);
  }
}

}  // namespace meron::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meron::bench {

HWY_EXPORT(stream_target);

void stream(float* p, const float* g, float* m, float* v, size_t n) {
  volatile uint32_t nothing = 0;
  HWY_DYNAMIC_DISPATCH(stream_target)(p, g, m, v, n, nothing);
}

}  // namespace meron::bench
#endif

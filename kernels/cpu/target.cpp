// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/target.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/target.cpp"
#include "hwy/foreach_target.h"  // must come before highway.h

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace meron::kernels::HWY_NAMESPACE {

const char* compiled_target() {
  return hwy::TargetName(HWY_TARGET);
}

}  // namespace meron::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meron::kernels {

HWY_EXPORT(compiled_target);

const char* target_name() {
  return HWY_DYNAMIC_DISPATCH(compiled_target)();
}

}  // namespace meron::kernels
#endif

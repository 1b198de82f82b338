// SPDX-License-Identifier: Apache-2.0
// Element-wise conversions and additions between the storage types.
#pragma once

#include <cstddef>

#include "kernels/cpu/type.h"

namespace meron::kernels {

// dst[i] += src[i], added in f32 and rounded once to dst_type. `dst` and `src` may be the same
// array of one type, and do not overlap otherwise.
void accumulate(void* dst, Type dst_type, const void* src, Type src_type, size_t n);

// dst[i] = src[i], rounded as half.h says; between equal types the bytes are copied. bf16 and f16
// pass through f32, which holds both exactly, so every pair rounds at most once. `dst` and `src`
// may be the same array when the types are of one size, and do not overlap otherwise.
void convert(void* dst, Type dst_type, const void* src, Type src_type, size_t n);

}  // namespace meron::kernels

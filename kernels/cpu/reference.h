// SPDX-License-Identifier: Apache-2.0
// The kernels as plain loops over elements: what each must compute, to the bit. Tests compare every
// target with these, and so will kernels for other devices. Arguments are those of the kernels.
#pragma once

#include <cstddef>

#include "kernels/cpu/adamw.h"
#include "kernels/cpu/exact_sum.h"
#include "kernels/cpu/type.h"

namespace meron::kernels {

void adamw_reference(const AdamW& step, float* p, const void* g, Type g_type, float* m, float* v,
                     void* out, Type out_type, size_t n);

void reduce_reference(float* out, bool accumulate, const void* const* in, size_t count, Type type,
                      float scale, size_t n, ExactSum* squares);

void accumulate_reference(void* dst, Type dst_type, const void* src, Type src_type, size_t n);

void convert_reference(void* dst, Type dst_type, const void* src, Type src_type, size_t n);

}  // namespace meron::kernels

// SPDX-License-Identifier: Apache-2.0
// quant.h as plain loops over elements, as reference.h has the other kernels.
#pragma once

#include "kernels/cpu/quant.h"

namespace meron::kernels {

void quantize_reference(Encoded out, const void* in, Type type, size_t n, QuantFormat format,
                        uint64_t seed, uint64_t first_element, const void* minus, float* residual,
                        float beta, QuantError* error);

void dequantize_reference(void* out, Type type, ConstEncoded in, size_t n, QuantFormat format,
                          bool add);

void dequantize_sum_reference(float* out, bool accumulate, const ConstEncoded* in, size_t count,
                              float scale, size_t n, QuantFormat format, ExactSum* squares);

void dequantize_sum_quantize_reference(Encoded out, const ConstEncoded* in, size_t count,
                                       float scale, size_t n, QuantFormat in_format,
                                       QuantFormat out_format, uint64_t seed,
                                       uint64_t first_element, QuantError* error);

}  // namespace meron::kernels

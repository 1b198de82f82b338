// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/quant.h"

namespace meron::bench {

// Encoding and decoding bf16 as one would write them down, one element after the other, with 8 or 4
// bits in blocks; the same numbers as the kernels', give or take a rounding.
void naive_quantize(kernels::Encoded out, const uint16_t* in, size_t n,
                    kernels::QuantFormat format);
void naive_dequantize(uint16_t* out, kernels::ConstEncoded in, size_t n,
                      kernels::QuantFormat format);

}  // namespace meron::bench

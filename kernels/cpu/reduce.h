// SPDX-License-Identifier: Apache-2.0
// The arithmetic of reduce-scatter: sums the ranks' gradients in a fixed order and, in the same
// pass, takes the sum of squares for the gradient norm.
#pragma once

#include <cstddef>

#include "kernels/cpu/exact_sum.h"
#include "kernels/cpu/type.h"

namespace meron::kernels {

// out[i] = (start + in[0][i] + in[1][i] + ... + in[count-1][i]) * scale
// where start is out[i] when `accumulate`, else nothing: the sum then begins with in[0][i], and is
// +0 when count is 0. Inputs are of `type`; every addition and the multiplication is one f32
// operation, from left to right. The result is the same bits on every CPU (only a NaN's sign and
// payload are unspecified).
//
// With `squares`, the squares of the results are added to it: for each block of kBlock elements,
// counted from the first (the last may be short), they are summed in double in 32 lanes (element k
// of the block in lane k mod 32), lanes are folded in halves (lane j takes lane j + 16, then 8, 4,
// 2, 1), and that block's sum enters *squares exactly. Because *squares has no order, the total
// does not depend on how a caller cut the range, as long as it cut at multiples of kBlock.
//
// Arrays are aligned to their element; `out` may be the very same array as an f32 input, and does
// not overlap an input otherwise. Reads every input once. A large `out` that is not read is written
// past the caches (kStreamBytes of copy.h), and any `out` if it is `handed_over`: other cores have
// read it and will read it next (hand_over of copy.h). On return all of `out` can be published with
// a release operation. May be called from any number of threads on ranges that do not overlap, each
// with its own `squares`.
void reduce(float* out, bool accumulate, const void* const* in, size_t count, Type type,
            float scale, size_t n, ExactSum* squares, bool handed_over = false);

}  // namespace meron::kernels

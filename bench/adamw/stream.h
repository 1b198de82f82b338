// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace meron::bench {

// Moves what an AdamW step moves, in the shape of its loop and with the same vectors, and computes
// nothing: reads p, g, m and v, writes p, m and v back unchanged. Its rate is the memory's limit
// for a step.
void stream(float* p, const float* g, float* m, float* v, size_t n);

}  // namespace meron::bench

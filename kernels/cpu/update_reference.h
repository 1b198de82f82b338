// SPDX-License-Identifier: Apache-2.0
// update() as a plain loop over elements: what each target must compute, to the bit. Arguments are
// those of update.h.
#pragma once

#include "kernels/cpu/update.h"

namespace meron::kernels {

Largest update_reference(const UpdateStep& step, float* p, const void* g, Type g_type,
                         const States& states, void* out, Type out_type, size_t n, uint64_t first);

// Stores the new states of one block, of n elements from `first` of their flat on, as update()
// does: for a block that one call updates only in part.
void store_states_reference(const UpdateStep& step, const States& states, const float* const* from,
                            size_t n, uint64_t first);

}  // namespace meron::kernels

// SPDX-License-Identifier: Apache-2.0
// update() as a plain loop over elements: what each target must compute, to the bit. Arguments are
// those of update.h.
#pragma once

#include "kernels/cpu/update.h"

namespace meron::kernels {

void update_reference(const UpdateStep& step, float* p, const void* g, Type g_type,
                      const States& states, void* out, Type out_type, size_t n, uint64_t first);

}  // namespace meron::kernels

// SPDX-License-Identifier: Apache-2.0
// The caller's tensors, from C's structs to the engine's.
#pragma once

#include <cstdint>
#include <vector>

#include "capi/guard.h"
#include "meron/checkpoint.h"

namespace meron::capi {

// Texts are copied, data are not. MERON_E_ARGUMENT names the field. `rank`: that gives them.
Result<std::vector<GivenTensor>> read_tensors(const meron_checkpoint_tensor* tensors,
                                              uint64_t count, int rank);

}  // namespace meron::capi

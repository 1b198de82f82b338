// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace meron::kernels {

// The instruction set that the kernels use on this CPU, as Highway names it: "AVX3", "AVX2", ...
const char* target_name();

}  // namespace meron::kernels

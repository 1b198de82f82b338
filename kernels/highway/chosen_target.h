// SPDX-License-Identifier: Apache-2.0
// The instruction set that the environment variable MERON_CPU_TARGET requests in place of the best
// one: to compare results, or to find a defect of one set.
#pragma once

#include <string>

namespace meron::kernels {

// Why the request cannot be met; empty if it is, or if there is none. Kernels then use the best
// set.
std::string target_problem();
// The names that can be requested on this CPU, the best first: "AVX3, AVX2, SSE4".
std::string target_names();

}  // namespace meron::kernels

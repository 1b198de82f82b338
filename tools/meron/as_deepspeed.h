// SPDX-License-Identifier: Apache-2.0
// `meron run --as-deepspeed`: what programs of torch that import deepspeed find in their
// environment.
#pragma once

#include <string>

namespace meron::tools {

// Puts the folder that `python3 -m meron.zero.dropin` prints first in this process's PYTHONPATH,
// which the ranks inherit. The interpreter is `program` if its name begins with "python". Throws
// Failure if that Python has no package meron.
void put_dropin_on_python_path(const std::string& program);

}  // namespace meron::tools

// SPDX-License-Identifier: Apache-2.0
// Floating-point elements of files from one dtype to another. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace meron::checkpoint {

// F32, BF16 and F16: what convert_floats() takes.
bool is_convertible(std::string_view dtype);

// `count` elements, rounded to nearest even. Both dtypes are convertible.
void convert_floats(void* to, std::string_view to_dtype, const void* from,
                    std::string_view from_dtype, uint64_t count);

}  // namespace meron::checkpoint

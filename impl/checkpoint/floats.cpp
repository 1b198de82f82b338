// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/floats.h"

#include "kernels/cpu/accumulate.h"

namespace meron::checkpoint {
namespace {

kernels::Type type_of(std::string_view dtype) {
  if (dtype == "BF16") return kernels::Type::bf16;
  return dtype == "F16" ? kernels::Type::f16 : kernels::Type::f32;
}

}  // namespace

bool is_convertible(std::string_view dtype) {
  return dtype == "F32" || dtype == "BF16" || dtype == "F16";
}

void convert_floats(void* to, std::string_view to_dtype, const void* from,
                    std::string_view from_dtype, uint64_t count) {
  kernels::convert(to, type_of(to_dtype), from, type_of(from_dtype), count);
}

}  // namespace meron::checkpoint

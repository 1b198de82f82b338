// SPDX-License-Identifier: Apache-2.0
// What decoding promises, on every target.
#include "kernels/cpu/quant.h"

#include <cmath>
#include <cstdint>

#include "kernels/cpu/copy.h"
#include "quant_array.h"
#include "targets.h"

namespace meron::kernels {
namespace {

MERON_EACH_TARGET(Dequantize);

TEST_P(Dequantize, EveryTypeFormatAndSizeEqualsTheReference) {
  for (const QuantFormat format : formats({64, 256, 2048})) {
    if (format.stochastic) continue;
    for (const size_t n : sizes_around(format.block)) {
      CodeArray code(n, format);
      code.fill_bytes(static_cast<uint32_t>(n));
      if (code.blocks() > 2) code.set_step(1, std::nanf("")), code.set_step(2, 1e38f);
      for (const Type type : kTypes) {
        for (const bool add : {false, true}) {
          for (const bool handed_over : {false, true}) {
            Array actual(type, n, n % 3);
            fill(actual, 9, true);
            Array expected(actual);
            dequantize(actual.data(), type, code.at(), n, format, add, handed_over);
            dequantize_reference(expected.data(), type, code.at(), n, format, add);
            ASSERT_TRUE(same(actual, expected))
                << format << ", " << name_of(type) << ", " << n << ", add " << add;
          }
        }
      }
    }
  }
}

TEST_P(Dequantize, LargeOutputsEqualTheReference) {
  for (const QuantFormat format : formats({64, 256})) {
    if (format.stochastic) continue;
    for (const Type type : kTypes) {
      const size_t n = kStreamBytes / size_of(type) + 333;
      CodeArray code(n, format);
      code.fill_bytes(1);
      Array actual(type, n), expected(type, n);
      dequantize(actual.data(), type, code.at(), n, format);
      dequantize_reference(expected.data(), type, code.at(), n, format, false);
      ASSERT_TRUE(same(actual, expected)) << format << ", " << name_of(type);
    }
  }
}

}  // namespace
}  // namespace meron::kernels

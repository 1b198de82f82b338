// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/copy.h"

#include <cstdint>
#include <vector>

#include "array.h"
#include "targets.h"

namespace meron::kernels {
namespace {

MERON_EACH_TARGET(Copy);

// Bytes that differ at every distance a copy could be off by.
std::vector<uint8_t> pattern(size_t bytes) {
  std::vector<uint8_t> result(bytes);
  for (size_t i = 0; i < bytes; ++i) result[i] = static_cast<uint8_t>((i * 2654435761u) >> 13);
  return result;
}

TEST_P(Copy, CopiesEveryByteAndNoOther) {
  constexpr size_t kGuard = 128;
  const size_t sizes[] = {0,
                          1,
                          63,
                          64,
                          65,
                          4096,
                          12345,
                          kStreamCopyBytes - 1,
                          kStreamCopyBytes,
                          kStreamCopyBytes + 12345};
  for (const size_t bytes : sizes) {
    for (const size_t to : {0u, 1u, 2u, 63u}) {
      for (const size_t from : {0u, 1u, 17u}) {
        SCOPED_TRACE(testing::Message() << bytes << " bytes, from " << from << " to " << to);
        const std::vector<uint8_t> source = pattern(bytes + from);
        std::vector<uint8_t> target(2 * kGuard + to + bytes, 0xa5);
        std::vector<uint8_t> expected = target;
        if (bytes != 0) std::memcpy(expected.data() + kGuard + to, source.data() + from, bytes);
        std::vector<uint8_t> handed_over = target;
        copy(target.data() + kGuard + to, source.data() + from, bytes);
        ASSERT_TRUE(target == expected);
        hand_over(handed_over.data() + kGuard + to, source.data() + from, bytes);
        ASSERT_TRUE(handed_over == expected);
      }
    }
  }
}

TEST_P(Copy, NothingFromNowhereIsFine) {
  copy(nullptr, nullptr, 0);
  hand_over(nullptr, nullptr, 0);
}

}  // namespace
}  // namespace meron::kernels

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

void expect_copied(size_t bytes, size_t to, size_t from) {
  constexpr size_t kGuard = 128;
  SCOPED_TRACE(testing::Message() << bytes << " bytes, from " << from << " to " << to);
  const std::vector<uint8_t> source = pattern(bytes + from);
  std::vector<uint8_t> copied(2 * kGuard + to + bytes, 0xa5);
  std::vector<uint8_t> expected = copied, handed_over = copied;
  if (bytes != 0) std::memcpy(expected.data() + kGuard + to, source.data() + from, bytes);
  copy(copied.data() + kGuard + to, source.data() + from, bytes);
  ASSERT_TRUE(copied == expected);
  hand_over(handed_over.data() + kGuard + to, source.data() + from, bytes);
  ASSERT_TRUE(handed_over == expected);
}

TEST_P(Copy, CopiesEveryByteAndNoOther) {
  for (const size_t bytes : {0, 1, 63, 64, 65, 4096, 123456}) {
    for (const size_t to : {0u, 1u, 2u, 63u}) {
      for (const size_t from : {0u, 1u, 17u}) {
        expect_copied(bytes, to, from);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(Copy, LargeCopiesTakeAnotherWay) {
  expect_copied(kStreamCopyBytes - 1, 0, 1);
  expect_copied(kStreamCopyBytes, 0, 0);
  expect_copied(kStreamCopyBytes + 12345, 2, 17);
}

TEST_P(Copy, NothingFromNowhereIsFine) {
  copy(nullptr, nullptr, 0);
  hand_over(nullptr, nullptr, 0);
}

}  // namespace
}  // namespace meron::kernels

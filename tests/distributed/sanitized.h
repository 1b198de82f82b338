// SPDX-License-Identifier: Apache-2.0
// Whether a sanitizer watches. It makes everything slower by a factor, and sees in a few rounds
// what it would see in many: what takes many to prove is proved without it.
#pragma once

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MERON_TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define MERON_TEST_SANITIZED 1
#endif
#endif
#ifndef MERON_TEST_SANITIZED
#define MERON_TEST_SANITIZED 0
#endif

namespace meron::test {

inline constexpr bool kSanitized = MERON_TEST_SANITIZED != 0;

}  // namespace meron::test

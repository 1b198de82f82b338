// SPDX-License-Identifier: Apache-2.0
// True under a sanitizer. It slows programs down by a factor, and finds in a few rounds all that it
// finds in many. Tests that need many rounds run them without it.
#pragma once

#if defined(__SANITIZE_THREAD__)
#define MERON_TEST_THREAD_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define MERON_TEST_THREAD_SANITIZED 1
#endif
#endif
#ifndef MERON_TEST_THREAD_SANITIZED
#define MERON_TEST_THREAD_SANITIZED 0
#endif

#if defined(__SANITIZE_ADDRESS__) || MERON_TEST_THREAD_SANITIZED
#define MERON_TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MERON_TEST_SANITIZED 1
#endif
#endif
#ifndef MERON_TEST_SANITIZED
#define MERON_TEST_SANITIZED 0
#endif

namespace meron::test {

inline constexpr bool kSanitized = MERON_TEST_SANITIZED != 0;
// Under ThreadSanitizer views are writable: see impl/memory/double_mapping.h.
inline constexpr bool kThreadSanitized = MERON_TEST_THREAD_SANITIZED != 0;

}  // namespace meron::test

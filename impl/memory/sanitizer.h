// SPDX-License-Identifier: Apache-2.0
// Private to memory/: what the sanitizers have to be told about memory that they do not allocate.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#define MERON_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MERON_ASAN 1
#endif
#endif

#if defined(__SANITIZE_THREAD__)
#define MERON_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define MERON_TSAN 1
#endif
#endif

#ifdef MERON_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace meron {

#ifdef MERON_ASAN
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = false;
#endif
#ifdef MERON_TSAN
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif

// Under AddressSanitizer: from now on, touching the range is reported as an error, or is not.
inline void forbid_access([[maybe_unused]] const void* data, [[maybe_unused]] size_t bytes) {
#ifdef MERON_ASAN
  __asan_poison_memory_region(data, bytes);
#endif
}
inline void allow_access([[maybe_unused]] const void* data, [[maybe_unused]] size_t bytes) {
#ifdef MERON_ASAN
  __asan_unpoison_memory_region(data, bytes);
#endif
}

}  // namespace meron

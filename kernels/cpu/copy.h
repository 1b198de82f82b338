// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace meron::kernels {

// Copies bytes between ranges that do not overlap; from kStreamCopyBytes on, past the caches. On
// return all of `dst` can be published with a release operation.
void copy(void* dst, const void* src, size_t bytes);

// The caller reads the copy, so writes past the caches are better only if the copy would not fit in
// a last-level cache either. (One core of a cloud's host: 1 MiB in 22 us and not 77, 64 MiB in 3.4
// ms and not 5.3.)
inline constexpr size_t kStreamCopyBytes = size_t{16} << 20;

// The same into memory that other cores have read and will read next, which is past the caches: a
// usual store must first acquire each line from its last reader, one after another. (1 MiB for a
// core that has its own caches: 51 us and not 254.)
void hand_over(void* dst, const void* src, size_t bytes);

// An output that is not read, this large and no longer in a core's own cache when it is finished,
// is written past the caches, in reduce() and in adamw(): it is then not fetched before it is
// overwritten. If memory is the limit, this saves a third of the traffic; below this size an output
// that stays in the cache is up to twice as fast to write.
inline constexpr size_t kStreamBytes = size_t{2} << 20;

inline constexpr size_t kLine = 64;

inline bool worth_streaming(const void* to, size_t bytes, bool handed_over = false) {
  return (handed_over || bytes >= kStreamBytes) && reinterpret_cast<uintptr_t>(to) % kLine == 0;
}

}  // namespace meron::kernels

// SPDX-License-Identifier: Apache-2.0
// A 64-bit hash for fingerprints: equal on every rank and in every build. Not for secrets.
#pragma once

#include <cstdint>
#include <string_view>

namespace meron {

// FNV-1a (Fowler, Noll, Vo) over bytes, then the finalizer of SplitMix64 so that close inputs
// differ in all bits.
constexpr uint64_t mix(uint64_t value) {
  value ^= value >> 30;
  value *= 0xbf58476d1ce4e5b9ull;
  value ^= value >> 27;
  value *= 0x94d049bb133111ebull;
  return value ^ (value >> 31);
}

constexpr uint64_t hash_text(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return mix(hash);
}

constexpr uint64_t hash_combine(uint64_t seed, uint64_t value) {
  return mix(seed ^ (value + 0x9e3779b97f4a7c15ull + (seed << 6) + (seed >> 2)));
}

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
// Gopal, Ozturk, Guilford et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
// Instruction" (Intel, 2009), with registers of 512 bits.
//
// A message is a polynomial over GF(2), and its checksum the remainder by P. 128 bits that D bits
// of message follow may be replaced by 128 bits that are added to those D bits further on: with
// halves a (the earlier one) and b of 64 bits, a x^(D+64) + b x^D is congruent to
// a (x^(D+64) mod P) + b (x^D mod P), which has less than 128 bits. Four registers are folded over
// 2048 bits at a time, then into one, then its four parts into the last; what that has is a message
// of 16 bytes with the same remainder.
#include "kernels/cpu/crc32c_fold.h"

#if defined(__x86_64__)

// GCC 12's own header makes values that nothing has set on purpose.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include <cstdint>

#define MERON_FOLD_TARGET \
  __attribute__((target("avx512f,avx512vl,avx512dq,vpclmulqdq,pclmul,sse4.2")))

namespace meron::kernels {
namespace {

// As in crc32c.cpp.
constexpr uint32_t kPolynomial = 0x82f63b78;

// x^n mod P, for a carry-less product of words whose lowest bit is the highest power: such a
// product is one bit too low, and 32 bits are the upper half of 64, hence the exponents below.
constexpr uint64_t power(unsigned n) {
  uint32_t value = 0x80000000u;
  for (unsigned i = 0; i < n; ++i) value = (value >> 1) ^ ((value & 1) != 0 ? kPolynomial : 0);
  return uint64_t{value} << 1;
}

// By which both halves of 128 bits are multiplied that `bits` bits follow, counted from begin to
// begin.
template <unsigned kBits>
struct Fold {
  static constexpr uint64_t kEarly = power(kBits + 32);  // the lower word
  static constexpr uint64_t kLate = power(kBits - 32);
};
static_assert(Fold<512>::kEarly == 0x740eef02 && Fold<512>::kLate == 0x9e4addf8);

template <unsigned kBits>
MERON_FOLD_TARGET inline __m512i onto(__m512i from, __m512i to) {
  const __m512i factors = _mm512_broadcast_i32x4(_mm_set_epi64x(
      static_cast<long long>(Fold<kBits>::kLate), static_cast<long long>(Fold<kBits>::kEarly)));
  const __m512i early = _mm512_clmulepi64_epi128(from, factors, 0x00);
  const __m512i late = _mm512_clmulepi64_epi128(from, factors, 0x11);
  constexpr int kXorOfThree = 0x96;
  return _mm512_ternarylogic_epi64(early, late, to, kXorOfThree);
}

MERON_FOLD_TARGET inline __m128i onto_next(__m128i from, __m128i to) {
  const __m128i factors = _mm_set_epi64x(static_cast<long long>(Fold<128>::kLate),
                                         static_cast<long long>(Fold<128>::kEarly));
  const __m128i early = _mm_clmulepi64_si128(from, factors, 0x00);
  const __m128i late = _mm_clmulepi64_si128(from, factors, 0x11);
  return _mm_xor_si128(_mm_xor_si128(early, late), to);
}

MERON_FOLD_TARGET inline __m512i load(const unsigned char* from) {
  return _mm512_loadu_si512(from);
}

MERON_FOLD_TARGET uint32_t fold(const unsigned char* from, size_t bytes, uint32_t crc) {
  constexpr size_t kStep = 256;
  // The hardware prefetchers stop at pages: lines ahead are prefetched in any case.
  constexpr size_t kAhead = 1024;
  __m512i a = _mm512_xor_si512(load(from),
                               _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(crc))));
  __m512i b = load(from + 64), c = load(from + 128), d = load(from + 192);
  for (size_t at = kStep; at < bytes; at += kStep) {
    const unsigned char* const next = from + at;
    _mm_prefetch(next + kAhead, _MM_HINT_T0);
    _mm_prefetch(next + kAhead + 64, _MM_HINT_T0);
    _mm_prefetch(next + kAhead + 128, _MM_HINT_T0);
    _mm_prefetch(next + kAhead + 192, _MM_HINT_T0);
    a = onto<2048>(a, load(next));
    b = onto<2048>(b, load(next + 64));
    c = onto<2048>(c, load(next + 128));
    d = onto<2048>(d, load(next + 192));
  }
  d = onto<512>(onto<512>(onto<512>(a, b), c), d);
  __m128i last = onto_next(_mm512_extracti64x2_epi64(d, 0), _mm512_extracti64x2_epi64(d, 1));
  last = onto_next(last, _mm512_extracti64x2_epi64(d, 2));
  last = onto_next(last, _mm512_extracti64x2_epi64(d, 3));
  const uint64_t rest = _mm_crc32_u64(0, static_cast<uint64_t>(_mm_cvtsi128_si64(last)));
  return static_cast<uint32_t>(
      _mm_crc32_u64(rest, static_cast<uint64_t>(_mm_extract_epi64(last, 1))));
}

}  // namespace

bool crc32c_folds() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("vpclmulqdq") &&
         __builtin_cpu_supports("sse4.2");
}

uint32_t crc32c_fold(const unsigned char* from, size_t bytes, uint32_t crc) {
  return fold(from, bytes, crc);
}

}  // namespace meron::kernels

#else

namespace meron::kernels {

bool crc32c_folds() {
  return false;
}

uint32_t crc32c_fold(const unsigned char*, size_t, uint32_t crc) {
  return crc;
}

}  // namespace meron::kernels

#endif

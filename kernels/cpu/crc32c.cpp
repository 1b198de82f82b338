// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/crc32c.h"

#include "kernels/cpu/crc32c_fold.h"

#include <array>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace meron::kernels {
namespace {

static_assert(std::endian::native == std::endian::little, "words are read as they lie");

// Bit i of a checksum is the coefficient of x^(31 - i): the order in which bits are sent.
constexpr uint32_t kPolynomial = 0x82f63b78;

// Times x, in the field.
constexpr uint32_t shifted(uint32_t crc) {
  return (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
}

// kByte[k][b]: what byte b adds to the checksum when k zero bytes follow it.
struct Tables {
  constexpr Tables() {
    for (uint32_t b = 0; b < 256; ++b) {
      uint32_t crc = b;
      for (int bit = 0; bit < 8; ++bit) crc = shifted(crc);
      byte[0][b] = crc;
    }
    for (size_t k = 1; k < 8; ++k) {
      for (size_t b = 0; b < 256; ++b) {
        byte[k][b] = (byte[k - 1][b] >> 8) ^ byte[0][byte[k - 1][b] & 0xff];
      }
    }
  }
  std::array<std::array<uint32_t, 256>, 8> byte = {};
};
constexpr Tables kTables;

uint64_t word_at(const unsigned char* from) {
  uint64_t word;
  std::memcpy(&word, from, sizeof(word));
  return word;
}

#if defined(__x86_64__)
#define MERON_CRC_TARGET __attribute__((target("sse4.2")))
#elif defined(__aarch64__) && defined(__linux__) && defined(__clang__)
#define MERON_CRC_TARGET __attribute__((target("crc")))
#elif defined(__aarch64__) && defined(__linux__)
#define MERON_CRC_TARGET __attribute__((target("+crc")))
#endif

#ifdef MERON_CRC_TARGET

#if defined(__x86_64__)
bool has_instruction() {
  return __builtin_cpu_supports("sse4.2");
}
MERON_CRC_TARGET inline uint32_t next_word(uint32_t crc, uint64_t word) {
  return static_cast<uint32_t>(_mm_crc32_u64(crc, word));
}
MERON_CRC_TARGET inline uint32_t next_byte(uint32_t crc, unsigned char byte) {
  return _mm_crc32_u8(crc, byte);
}
#else
bool has_instruction() {
  constexpr unsigned long kCrc32 = 1ul << 7;  // HWCAP_CRC32 of <asm/hwcap.h>
  return (::getauxval(AT_HWCAP) & kCrc32) != 0;
}
MERON_CRC_TARGET inline uint32_t next_word(uint32_t crc, uint64_t word) {
#if defined(__clang__)
  return __builtin_arm_crc32cd(crc, word);
#else
  return __builtin_aarch64_crc32cx(crc, word);
#endif
}
MERON_CRC_TARGET inline uint32_t next_byte(uint32_t crc, unsigned char byte) {
#if defined(__clang__)
  return __builtin_arm_crc32cb(crc, byte);
#else
  return __builtin_aarch64_crc32cb(crc, byte);
#endif
}
#endif

// The instruction yields a result per cycle, but each only after three cycles: three stretches that
// follow each other are therefore summed at the same time, and their checksums joined. A longer
// stretch makes joining rarer, a shorter one leaves less behind that is too short for three.
constexpr size_t kLong = 2048, kShort = 128;

// Appends kBytes zero bytes to a checksum, by table: the function is linear in the checksum's bits.
template <size_t kBytes>
struct Skip {
  constexpr Skip() {
    uint32_t basis[32] = {};
    for (uint32_t bit = 0; bit < 32; ++bit) {
      basis[bit] = uint32_t{1} << bit;
      for (size_t k = 0; k < kBytes; ++k) {
        basis[bit] = (basis[bit] >> 8) ^ kTables.byte[0][basis[bit] & 0xff];
      }
    }
    for (size_t k = 0; k < 4; ++k) {
      for (uint32_t b = 0; b < 256; ++b) {
        for (uint32_t bit = 0; bit < 8; ++bit) {
          if ((b >> bit & 1) != 0) byte[k][b] ^= basis[8 * k + bit];
        }
      }
    }
  }
  constexpr uint32_t operator()(uint32_t crc) const {
    return byte[0][crc & 0xff] ^ byte[1][crc >> 8 & 0xff] ^ byte[2][crc >> 16 & 0xff] ^
           byte[3][crc >> 24];
  }
  std::array<std::array<uint32_t, 256>, 4> byte = {};
};
constexpr Skip<kLong> kSkipLong;
constexpr Skip<kShort> kSkipShort;

template <size_t kBytes>
MERON_CRC_TARGET inline uint32_t next_three(uint32_t crc, const unsigned char* from,
                                            const Skip<kBytes>& skip) {
  uint32_t second = 0, third = 0;
  for (size_t i = 0; i < kBytes; i += 8) {
    crc = next_word(crc, word_at(from + i));
    second = next_word(second, word_at(from + kBytes + i));
    third = next_word(third, word_at(from + 2 * kBytes + i));
  }
  return skip(skip(crc) ^ second) ^ third;
}

MERON_CRC_TARGET uint32_t by_instruction(const unsigned char* from, size_t bytes, uint32_t crc) {
  for (; bytes >= 3 * kLong; from += 3 * kLong, bytes -= 3 * kLong) {
    crc = next_three(crc, from, kSkipLong);
  }
  for (; bytes >= 3 * kShort; from += 3 * kShort, bytes -= 3 * kShort) {
    crc = next_three(crc, from, kSkipShort);
  }
  for (; bytes >= 8; from += 8, bytes -= 8) crc = next_word(crc, word_at(from));
  for (; bytes != 0; ++from, --bytes) crc = next_byte(crc, *from);
  return crc;
}

#endif  // MERON_CRC_TARGET

}  // namespace

uint32_t crc32c_by_table(const void* data, size_t bytes, uint32_t seed) {
  const auto& t = kTables.byte;
  const auto* from = static_cast<const unsigned char*>(data);
  uint32_t crc = ~seed;
  for (; bytes >= 8; from += 8, bytes -= 8) {
    const uint64_t word = word_at(from) ^ crc;
    crc = 0;
    for (size_t k = 0; k < 8; ++k) crc ^= t[7 - k][word >> (8 * k) & 0xff];
  }
  for (; bytes != 0; ++from, --bytes) crc = (crc >> 8) ^ t[0][(crc ^ *from) & 0xff];
  return ~crc;
}

uint32_t crc32c(const void* data, size_t bytes, uint32_t seed) {
#ifdef MERON_CRC_TARGET
  static const bool instruction = has_instruction(), folds = crc32c_folds();
  const auto* from = static_cast<const unsigned char*>(data);
  uint32_t crc = ~seed;
  if (folds && bytes >= kLeastFold) {
    const size_t folded = bytes / 256 * 256;
    crc = crc32c_fold(from, folded, crc);
    from += folded;
    bytes -= folded;
  }
  if (instruction) return ~by_instruction(from, bytes, crc);
#endif
  return crc32c_by_table(data, bytes, seed);
}

}  // namespace meron::kernels

// SPDX-License-Identifier: Apache-2.0
#include "values.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "table.h"

namespace conformance {
namespace {

double pattern(uint64_t index, int64_t seed) {
  const auto sum = static_cast<int64_t>((index % 61) * 7) + (seed % 61) * 13;
  return static_cast<double>(sum % 61 - 30) / 8.0;
}

uint16_t to_bf16(double value) {
  const auto narrow = static_cast<float>(value);
  uint32_t bits = 0;
  std::memcpy(&bits, &narrow, sizeof bits);
  return static_cast<uint16_t>(bits >> 16);
}

double from_bf16(uint16_t half) {
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  float value = 0.0f;
  std::memcpy(&value, &bits, sizeof value);
  return static_cast<double>(value);
}

// Normal numbers only: no case has smaller ones.
uint16_t to_f16(double value) {
  const unsigned sign = std::signbit(value) ? 0x8000u : 0u;
  if (std::isnan(value)) return 0x7e00;
  if (std::isinf(value)) return static_cast<uint16_t>(sign | 0x7c00u);
  if (value == 0.0) return static_cast<uint16_t>(sign);
  int exponent = 0;
  const double fraction = std::frexp(std::fabs(value), &exponent);  // 0.5 to 1
  const auto mantissa = static_cast<unsigned>((2.0 * fraction - 1.0) * 1024.0);
  return static_cast<uint16_t>(sign | static_cast<unsigned>(exponent + 14) << 10 | mantissa);
}

double from_f16(uint16_t half) {
  const double sign = (half & 0x8000u) != 0 ? -1.0 : 1.0;
  const int exponent = (half >> 10) & 31;
  const double mantissa = half & 1023u;
  if (exponent == 31) return mantissa == 0.0 ? sign * INFINITY : NAN;
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024.0 + mantissa, exponent - 25);
}

}  // namespace

Values::Values(const std::string& text, int rank, int world) {
  for (const std::string& part : split(text, '+')) {
    Term term;
    const size_t colon = part.find(':');
    if (colon == std::string::npos) throw Malformed{"'" + text + "' are no values"};
    const size_t star = part.find('*');
    const std::string kind = part.substr(0, colon);
    const std::string argument =
        part.substr(colon + 1, star == std::string::npos ? std::string::npos : star - colon - 1);
    if (star != std::string::npos) term.factor = to_number(part.substr(star + 1));
    if (kind == "fill") {
      term.constant = to_number(argument);
    } else if (kind == "pattern") {
      term.seeds = {to_integer(argument)};
    } else if (kind == "rank") {
      term.seeds = {to_integer(argument) + rank};
    } else if (kind == "ranks" || kind == "mean") {
      for (int each = 0; each < world; ++each) term.seeds.push_back(to_integer(argument) + each);
      if (kind == "mean") term.factor /= world;
    } else {
      throw Malformed{"unknown values '" + kind + "'"};
    }
    terms_.push_back(term);
  }
}

double Values::at(uint64_t index) const {
  double sum = 0.0;
  for (const Term& term : terms_) {
    double value = term.constant;
    for (const int64_t seed : term.seeds) value += pattern(index, seed);
    sum += value * term.factor;
  }
  return sum;
}

meron_dtype dtype_of(const std::string& name) {
  if (name == "f32") return MERON_F32;
  if (name == "bf16") return MERON_BF16;
  if (name == "f16") return MERON_F16;
  if (name == "f64") return MERON_F64;
  if (name == "i64") return MERON_I64;
  throw Malformed{"unknown dtype '" + name + "'"};
}

std::string name_of(meron_dtype dtype) {
  static const char* const kNames[] = {"f32", "bf16", "f16", "f64", "i64"};
  return kNames[dtype];
}

void store(meron_dtype dtype, void* data, uint64_t index, double value) {
  if (dtype == MERON_F32) {
    static_cast<float*>(data)[index] = static_cast<float>(value);
  } else if (dtype == MERON_F64) {
    static_cast<double*>(data)[index] = value;
  } else if (dtype == MERON_I64) {
    static_cast<int64_t*>(data)[index] = static_cast<int64_t>(value);
  } else {
    static_cast<uint16_t*>(data)[index] = dtype == MERON_BF16 ? to_bf16(value) : to_f16(value);
  }
  if (!std::isnan(value) && load(dtype, data, index) != value) {
    throw Malformed{std::to_string(value) + " is not exact in " + name_of(dtype)};
  }
}

double load(meron_dtype dtype, const void* data, uint64_t index) {
  if (dtype == MERON_F32) return static_cast<double>(static_cast<const float*>(data)[index]);
  if (dtype == MERON_F64) return static_cast<const double*>(data)[index];
  if (dtype == MERON_I64) return static_cast<double>(static_cast<const int64_t*>(data)[index]);
  const uint16_t bits = static_cast<const uint16_t*>(data)[index];
  return dtype == MERON_BF16 ? from_bf16(bits) : from_f16(bits);
}

std::vector<std::byte> stored(const Values& values, meron_dtype dtype, uint64_t count,
                              uint64_t offset) {
  std::vector<std::byte> data(count * meron_dtype_size(dtype));
  for (uint64_t i = 0; i < count; ++i) store(dtype, data.data(), i, values.at(offset + i));
  return data;
}

std::string crc32_of(const void* data, size_t bytes) {
  uint32_t crc = 0xffffffffu;
  for (size_t i = 0; i < bytes; ++i) {
    crc ^= static_cast<const unsigned char*>(data)[i];
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0xedb88320u : 0u);
  }
  std::array<char, 9> text{};
  std::snprintf(text.data(), text.size(), "%08x", ~crc);
  return text.data();
}

}  // namespace conformance

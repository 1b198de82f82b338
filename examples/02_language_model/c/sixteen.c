/* SPDX-License-Identifier: Apache-2.0 */
#include "sixteen.h"

#include <math.h>
#include <string.h>

static uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}
static float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* bf16 is the upper half of an f32. */
static float from_bf16(uint16_t half) {
  return float_of((uint32_t)half << 16);
}
static uint16_t to_bf16(float value) {
  const uint32_t bits = bits_of(value);
  if (isnan(value)) return (uint16_t)((bits >> 16) | 0x40u);
  return (uint16_t)((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

/* f16: 5 bits of exponent, 10 of fraction. Multiplying by 2^112 turns the exponent's bias of 15
 * into f32's 127, and gets subnormal numbers right by itself. */
static float from_f16(uint16_t half) {
  const uint32_t sign = (uint32_t)(half & 0x8000u) << 16, rest = (uint32_t)(half & 0x7FFFu) << 13;
  if (rest >= 0x7C00u << 13) return float_of(sign | 0x7F800000u | rest); /* infinity, NaN */
  return float_of(sign | bits_of(float_of(rest) * 0x1p112f));
}
static uint16_t to_f16(float value) {
  const uint16_t sign = (uint16_t)((bits_of(value) >> 16) & 0x8000u);
  const float size = fabsf(value);
  if (isnan(value)) return (uint16_t)(sign | 0x7E00u);
  if (size >= 65520.0f) return (uint16_t)(sign | 0x7C00u); /* halfway beyond the greatest */
  if (size < 0x1p-14f) /* subnormal: adding 0.5 leaves units of 2^-24, rounded by the hardware */
    return (uint16_t)(sign | (bits_of(size + 0.5f) - bits_of(0.5f)));
  const uint32_t bits = bits_of(size) - (112u << 23);
  return (uint16_t)(sign | ((bits + 0xFFFu + ((bits >> 13) & 1u)) >> 13));
}

void widen(float* values, const void* from, size_t count, meron_dtype dtype) {
  const uint16_t* halves = from;
  if (dtype == MERON_BF16)
    for (size_t i = 0; i < count; ++i) values[i] = from_bf16(halves[i]);
  else
    for (size_t i = 0; i < count; ++i) values[i] = from_f16(halves[i]);
}

void add_rounded(void* to, const float* values, size_t count, meron_dtype dtype) {
  uint16_t* halves = to;
  if (dtype == MERON_BF16)
    for (size_t i = 0; i < count; ++i) halves[i] = to_bf16(from_bf16(halves[i]) + values[i]);
  else
    for (size_t i = 0; i < count; ++i) halves[i] = to_f16(from_f16(halves[i]) + values[i]);
}

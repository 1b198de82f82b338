/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 16-bit floating point: the model computes in f32, so weights of another dtype are widened on
 * their way in and gradients rounded (to nearest, ties to even) on their way out.
 */
#ifndef LANGUAGE_MODEL_SIXTEEN_H
#define LANGUAGE_MODEL_SIXTEEN_H

#include <meron/meron.h>
#include <stddef.h>

/* values[i] = from[i], for dtype MERON_BF16 or MERON_F16. */
void widen(float* values, const void* from, size_t count, meron_dtype dtype);

/* to[i] += values[i], computed in f32 and rounded once. */
void add_rounded(void* to, const float* values, size_t count, meron_dtype dtype);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The matrix product that the model is made of, twice. By a BLAS if the build found one: several
 * times as fast, on one thread, as ranks share the cores. In plain C, blocked for cache and
 * registers: every sum is taken in the order of its index, whatever the vector width of the CPU, so
 * that its bits are equal everywhere.
 */
#ifndef LANGUAGE_MODEL_MATRIX_H
#define LANGUAGE_MODEL_MATRIX_H

#include <stdint.h>

enum product { kProductPlain, kProductBlas };

/* The BLAS of this build, or NULL; kProductBlas needs one. */
const char* blas_name(void);

/* Says by what the products that follow are computed: kProductPlain until it is called. */
void choose_product(enum product product);

/* A view of a matrix: strides in elements from one row, and from one column, to the next. */
struct matrix {
  const float* data;
  int64_t row, column;
};

/* A row-major matrix of `width` columns, and its transpose. */
struct matrix rows_of(const float* data, int64_t width);
struct matrix transpose_of(const float* data, int64_t width);

/* The unit of work, and the columns of the scratch `panel` below. */
enum { kTileRows = 4, kTileColumns = 16 };

/* c[m][n] += a (m x k) times b (k x n), both from rows_of() or transpose_of(); in plain C each sum
 * is completed before it is added. `panel` is scratch of k * kTileColumns floats. */
void add_product(float* restrict c, struct matrix a, struct matrix b, int64_t m, int64_t n,
                 int64_t k, float* restrict panel);

/* sums[n] += the sum of the rows of the row-major b[k][n]. */
void add_row_sums(float* sums, const float* b, int64_t n, int64_t k, float* panel);

#endif

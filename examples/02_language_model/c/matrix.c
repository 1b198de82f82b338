/* SPDX-License-Identifier: Apache-2.0 */
#include "matrix.h"

#include <stddef.h>

#ifdef LANGUAGE_MODEL_BLAS
#include <cblas.h>
#endif

static enum product chosen = kProductPlain;

struct matrix rows_of(const float* data, int64_t width) {
  return (struct matrix){data, width, 1};
}

struct matrix transpose_of(const float* data, int64_t width) {
  return (struct matrix){data, 1, width};
}

/* --- By a BLAS --------------------------------------------------------------------------------*/

#ifdef LANGUAGE_MODEL_BLAS
const char* blas_name(void) {
  return LANGUAGE_MODEL_BLAS;
}

void choose_product(enum product product) {
  chosen = product;
#ifdef LANGUAGE_MODEL_OPENBLAS
  openblas_set_num_threads(1);
#endif
}

static void add_product_by_blas(float* c, struct matrix a, struct matrix b, int64_t m, int64_t n,
                                int64_t k) {
  const int a_is_transpose = a.column != 1, b_is_transpose = b.column != 1;
  cblas_sgemm(CblasRowMajor, a_is_transpose ? CblasTrans : CblasNoTrans,
              b_is_transpose ? CblasTrans : CblasNoTrans, (int)m, (int)n, (int)k, 1.0f, a.data,
              (int)(a_is_transpose ? a.column : a.row), b.data,
              (int)(b_is_transpose ? b.column : b.row), 1.0f, c, (int)n);
}
#else
const char* blas_name(void) {
  return NULL;
}

void choose_product(enum product product) {
  chosen = product;
}

static void add_product_by_blas(float* c, struct matrix a, struct matrix b, int64_t m, int64_t n,
                                int64_t k) {
  (void)c, (void)a, (void)b, (void)m, (void)n, (void)k;
}
#endif

/* --- In plain C -------------------------------------------------------------------------------*/

/*
 * For each tile of c: columns of b, packed side by side in `panel`, stay in the L1 cache while the
 * rows of a pass by; the sums stay in registers.
 */
static void add_product_in_c(float* restrict c, struct matrix a, struct matrix b, int64_t m,
                             int64_t n, int64_t k, float* restrict panel) {
  for (int64_t j = 0; j < n; j += kTileColumns) {
    const int64_t columns = n - j < kTileColumns ? n - j : kTileColumns;
    for (int64_t p = 0; p < k; ++p)
      for (int64_t x = 0; x < kTileColumns; ++x)
        panel[p * kTileColumns + x] = x < columns ? b.data[p * b.row + (j + x) * b.column] : 0.0f;

    for (int64_t i = 0; i < m; i += kTileRows) {
      const int64_t rows = m - i < kTileRows ? m - i : kTileRows;
      const float* a_rows[kTileRows]; /* past the last row: the last one again, result unused */
      for (int64_t y = 0; y < kTileRows; ++y)
        a_rows[y] = a.data + (i + (y < rows ? y : rows - 1)) * a.row;

      float sums[kTileRows][kTileColumns] = {{0.0f}};
      for (int64_t p = 0; p < k; ++p)
        for (int64_t y = 0; y < kTileRows; ++y) {
          const float factor = a_rows[y][p * a.column];
          for (int64_t x = 0; x < kTileColumns; ++x)
            sums[y][x] += factor * panel[p * kTileColumns + x];
        }
      for (int64_t y = 0; y < rows; ++y)
        for (int64_t x = 0; x < columns; ++x) c[(i + y) * n + j + x] += sums[y][x];
    }
  }
}

void add_product(float* restrict c, struct matrix a, struct matrix b, int64_t m, int64_t n,
                 int64_t k, float* restrict panel) {
  if (chosen == kProductBlas)
    add_product_by_blas(c, a, b, m, n, k);
  else
    add_product_in_c(c, a, b, m, n, k, panel);
}

void add_row_sums(float* sums, const float* b, int64_t n, int64_t k, float* panel) {
  static const float one = 1.0f;
  add_product_in_c(sums, (struct matrix){&one, 0, 0}, rows_of(b, n), 1, n, k, panel);
}

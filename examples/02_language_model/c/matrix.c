/* SPDX-License-Identifier: Apache-2.0 */
#include "matrix.h"

struct matrix rows_of(const float* data, int64_t width) {
  return (struct matrix){data, width, 1};
}

struct matrix transpose_of(const float* data, int64_t width) {
  return (struct matrix){data, 1, width};
}

/*
 * For each tile of c: columns of b, packed side by side in `panel`, stay in the L1 cache while the
 * rows of a pass by; the sums stay in registers.
 */
void add_product(float* restrict c, struct matrix a, struct matrix b, int64_t m, int64_t n,
                 int64_t k, float* restrict panel) {
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

void add_row_sums(float* sums, const float* b, int64_t n, int64_t k, float* panel) {
  static const float one = 1.0f;
  add_product(sums, (struct matrix){&one, 0, 0}, rows_of(b, n), 1, n, k, panel);
}

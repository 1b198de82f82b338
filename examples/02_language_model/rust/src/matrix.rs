// SPDX-License-Identifier: Apache-2.0
//! The matrix product that the model is made of, blocked for cache and registers. Every sum is taken in
//! the order of its index, whatever the vector width of the CPU: equal bits everywhere.

/// The unit of work.
const TILE_ROWS: usize = 4;
/// The columns of the scratch `panel` of `add_product`.
pub const TILE_COLUMNS: usize = 16;

/// A view of a matrix: strides in elements from one row, and from one column, to the next.
#[derive(Clone, Copy)]
pub struct Matrix<'a> {
    data: &'a [f32],
    row: usize,
    column: usize,
}

/// A row-major matrix of `width` columns.
pub fn rows_of(data: &[f32], width: usize) -> Matrix<'_> {
    Matrix { data, row: width, column: 1 }
}

/// Its transpose.
pub fn transpose_of(data: &[f32], width: usize) -> Matrix<'_> {
    Matrix { data, row: 1, column: width }
}

/// `c[m][n] += a (m x k) times b (k x n)`; each sum is completed before it is added. `panel` is scratch
/// of `k * TILE_COLUMNS`.
///
/// For each tile of c: columns of b, packed side by side in `panel`, stay in the L1 cache while the rows
/// of a pass by; the sums stay in registers.
pub fn add_product(
    c: &mut [f32],
    a: Matrix<'_>,
    b: Matrix<'_>,
    (m, n, k): (usize, usize, usize),
    panel: &mut [f32],
) {
    let panel = &mut panel[..k * TILE_COLUMNS];
    for j in (0..n).step_by(TILE_COLUMNS) {
        let columns = TILE_COLUMNS.min(n - j);
        for (p, line) in panel.chunks_exact_mut(TILE_COLUMNS).enumerate() {
            for (x, value) in line.iter_mut().enumerate() {
                *value = if x < columns { b.data[p * b.row + (j + x) * b.column] } else { 0.0 };
            }
        }

        for i in (0..m).step_by(TILE_ROWS) {
            let rows = TILE_ROWS.min(m - i);
            // Past the last row: the last one again, whose result is not used.
            let mut begins = [0; TILE_ROWS];
            for (y, begin) in begins.iter_mut().enumerate() {
                *begin = (i + y.min(rows - 1)) * a.row;
            }
            let sums = tile(a, begins, panel);
            for (y, line) in sums.iter().enumerate().take(rows) {
                let to = (i + y) * n + j;
                for (value, sum) in c[to..to + columns].iter_mut().zip(line) {
                    *value += sum;
                }
            }
        }
    }
}

/// The products of some rows of a with the panel.
fn tile(
    a: Matrix<'_>,
    begins: [usize; TILE_ROWS],
    panel: &[f32],
) -> [[f32; TILE_COLUMNS]; TILE_ROWS] {
    let mut sums = [[0.0f32; TILE_COLUMNS]; TILE_ROWS];
    for (p, line) in panel.chunks_exact(TILE_COLUMNS).enumerate() {
        for (row, begin) in sums.iter_mut().zip(begins) {
            let factor = a.data[begin + p * a.column];
            for (sum, value) in row.iter_mut().zip(line) {
                *sum += factor * value;
            }
        }
    }
    sums
}

/// `sums[n] +=` the sum of the rows of the row-major `b[k][n]`.
pub fn add_row_sums(sums: &mut [f32], b: &[f32], n: usize, k: usize, panel: &mut [f32]) {
    let one = Matrix { data: &[1.0], row: 0, column: 0 };
    add_product(sums, one, rows_of(b, n), (1, n, k), panel);
}

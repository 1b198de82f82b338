// SPDX-License-Identifier: Apache-2.0
package languagemodel;

import java.util.Arrays;

/**
 * A view of a matrix, and the matrix product that the model uses. Every sum is taken in the order of
 * its index, and completed before it is added: the bits are those of the program in C.
 */
final class Matrix {
    private final float[] data;
    private final int row; // steps in elements from one row to the next
    private final int column;

    private Matrix(float[] data, int row, int column) {
        this.data = data;
        this.row = row;
        this.column = column;
    }

    /** A row-major matrix of `width` columns. */
    static Matrix rows(float[] data, int width) {
        return new Matrix(data, width, 1);
    }

    /** Its transpose. */
    static Matrix transpose(float[] data, int width) {
        return new Matrix(data, 1, width);
    }

    /** Scratch of the products: made once, for the largest. */
    static final class Scratch {
        private final float[][] sums;
        private final float[] packed;

        /** For products of at most k times n, by matrices of at most `most` elements. */
        Scratch(int n, int most) {
            sums = new float[4][n];
            packed = new float[most];
        }
    }

    /** c[m][n] += a (m x k) times b (k x n). Inner loops run along rows, which compilers vectorize. */
    static void addProduct(float[] c, Matrix a, Matrix b, int m, int n, int k, Scratch scratch) {
        final float[] rows = b.column == 1 && b.row == n ? b.data : pack(b, n, k, scratch.packed);
        final float[][] sums = scratch.sums;
        int i = 0;
        for (; i + 4 <= m; i += 4) {
            for (float[] sum : sums) Arrays.fill(sum, 0, n, 0f);
            for (int p = 0; p < k; ++p) {
                final int at = i * a.row + p * a.column;
                addRows(sums[0], sums[1], sums[2], sums[3], a.data[at], a.data[at + a.row],
                        a.data[at + 2 * a.row], a.data[at + 3 * a.row], rows, p * n, n);
            }
            for (int y = 0; y < 4; ++y) add(c, (i + y) * n, sums[y], n);
        }
        for (; i < m; ++i) {
            Arrays.fill(sums[0], 0, n, 0f);
            for (int p = 0; p < k; ++p) {
                addRow(sums[0], a.data[i * a.row + p * a.column], rows, p * n, n);
            }
            add(c, i * n, sums[0], n);
        }
    }

    /** sums[n] += the sum of the rows of the row-major b[k][n]. */
    static void addRowSums(float[] sums, float[] b, int n, int k, Scratch scratch) {
        final float[] sum = scratch.sums[0];
        Arrays.fill(sum, 0, n, 0f);
        for (int p = 0; p < k; ++p) addRow(sum, 1f, b, p * n, n);
        add(sums, 0, sum, n);
    }

    private static float[] pack(Matrix b, int n, int k, float[] packed) {
        final int block = 16; // so that both sides stay in the cache
        for (int q = 0; q < k; q += block) {
            for (int j = 0; j < n; ++j) {
                for (int p = q; p < Math.min(q + block, k); ++p) {
                    packed[p * n + j] = b.data[p * b.row + j * b.column];
                }
            }
        }
        return packed;
    }

    private static void addRows(float[] s0, float[] s1, float[] s2, float[] s3, float f0, float f1,
            float f2, float f3, float[] b, int at, int n) {
        for (int j = 0; j < n; ++j) {
            final float value = b[at + j];
            s0[j] += f0 * value;
            s1[j] += f1 * value;
            s2[j] += f2 * value;
            s3[j] += f3 * value;
        }
    }

    private static void addRow(float[] sum, float factor, float[] b, int at, int n) {
        for (int j = 0; j < n; ++j) sum[j] += factor * b[at + j];
    }

    private static void add(float[] to, int at, float[] from, int n) {
        for (int j = 0; j < n; ++j) to[at + j] += from[j];
    }
}

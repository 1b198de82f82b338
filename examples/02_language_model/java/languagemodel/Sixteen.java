// SPDX-License-Identifier: Apache-2.0
package languagemodel;

import java.nio.ShortBuffer;
import org.meron.Dtype;

/** bf16 and f16, rounded to the nearest even. */
final class Sixteen {
    private Sixteen() {}

    /** Widens 16-bit elements to floats. */
    static void widen(float[] values, ShortBuffer from, int count, Dtype dtype) {
        for (int i = 0; i < count; ++i) values[i] = wide(from.get(i), dtype);
    }

    /** Adds floats to 16-bit elements. */
    static void addRounded(ShortBuffer to, float[] values, int count, Dtype dtype) {
        for (int i = 0; i < count; ++i) {
            final float sum = wide(to.get(i), dtype) + values[i];
            to.put(i, dtype == Dtype.BF16 ? toBf16(sum) : toF16(sum));
        }
    }

    private static float wide(short half, Dtype dtype) {
        return dtype == Dtype.BF16 ? Float.intBitsToFloat(half << 16) : fromF16(half);
    }

    /** bf16 is the upper half of an f32. */
    private static short toBf16(float value) {
        final int bits = Float.floatToRawIntBits(value);
        if (Float.isNaN(value)) return (short) ((bits >>> 16) | 0x40);
        return (short) ((bits + 0x7FFF + ((bits >>> 16) & 1)) >>> 16);
    }

    /**
     * f16: 5 bits of exponent, 10 of fraction. Multiplying by 2^112 turns the exponent's bias of 15
     * into f32's 127, and gets subnormal numbers right by itself.
     */
    private static float fromF16(short half) {
        final int sign = (half & 0x8000) << 16;
        final int rest = (half & 0x7FFF) << 13;
        if (rest >= 0x7C00 << 13) return Float.intBitsToFloat(sign | 0x7F800000 | rest);
        return Float.intBitsToFloat(
                sign | Float.floatToRawIntBits(Float.intBitsToFloat(rest) * 0x1p112f));
    }

    private static short toF16(float value) {
        final int sign = (Float.floatToRawIntBits(value) >>> 16) & 0x8000;
        final float size = Math.abs(value);
        if (Float.isNaN(value)) return (short) (sign | 0x7E00);
        if (size >= 65520f) return (short) (sign | 0x7C00); // halfway beyond the greatest
        if (size < 0x1p-14f) { // subnormal: adding 0.5 leaves units of 2^-24, rounded
            return (short) (sign
                    | (Float.floatToRawIntBits(size + 0.5f) - Float.floatToRawIntBits(0.5f)));
        }
        final int bits = Float.floatToRawIntBits(size) - (112 << 23);
        return (short) (sign | ((bits + 0xFFF + ((bits >>> 13) & 1)) >>> 13));
    }
}

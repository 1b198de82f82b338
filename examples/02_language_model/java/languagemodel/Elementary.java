// SPDX-License-Identifier: Apache-2.0
package languagemodel;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * expf and logf to the last bit of the GNU C library on x86-64, which the program in C calls: the
 * algorithms and tables of Arm's optimized routines. Java's own functions are of double precision, and
 * round to another float in about one case of five hundred.
 */
final class Elementary {
    /** True if the C library uses its functions with fused multiply-adds, because the CPU has them. */
    private static final boolean FUSED = cpuHasFma();

    /** Bits of 2^(i/32), less i in the exponent's place. */
    private static final long[] EXP = {
        0x3FF0000000000000L, 0x3FEFD9B0D3158574L, 0x3FEFB5586CF9890FL, 0x3FEF9301D0125B51L,
        0x3FEF72B83C7D517BL, 0x3FEF54873168B9AAL, 0x3FEF387A6E756238L, 0x3FEF1E9DF51FDEE1L,
        0x3FEF06FE0A31B715L, 0x3FEEF1A7373AA9CBL, 0x3FEEDEA64C123422L, 0x3FEECE086061892DL,
        0x3FEEBFDAD5362A27L, 0x3FEEB42B569D4F82L, 0x3FEEAB07DD485429L, 0x3FEEA47EB03A5585L,
        0x3FEEA09E667F3BCDL, 0x3FEE9F75E8EC5F74L, 0x3FEEA11473EB0187L, 0x3FEEA589994CCE13L,
        0x3FEEACE5422AA0DBL, 0x3FEEB737B0CDC5E5L, 0x3FEEC49182A3F090L, 0x3FEED503B23E255DL,
        0x3FEEE89F995AD3ADL, 0x3FEEFF76F2FB5E47L, 0x3FEF199BDD85529CL, 0x3FEF3720DCEF9069L,
        0x3FEF5818DCFBA487L, 0x3FEF7C97337B9B5FL, 0x3FEFA4AFA2A490DAL, 0x3FEFD0765B6E4540L,
    };

    /** Of each sixteenth of [0x1.66p-1, 0x1.66p0): the inverse of a number in it, and that one's log. */
    private static final double[][] LOG = {
        {0x1.661ec79f8f3bep+0, -0x1.57bf7808caadep-2}, {0x1.571ed4aaf883dp+0, -0x1.2bef0a7c06ddbp-2},
        {0x1.49539f0f010b0p+0, -0x1.01eae7f513a67p-2}, {0x1.3c995b0b80385p+0, -0x1.b31d8a68224e9p-3},
        {0x1.30d190c8864a5p+0, -0x1.6574f0ac07758p-3}, {0x1.25e227b0b8ea0p+0, -0x1.1aa2bc79c8100p-3},
        {0x1.1bb4a4a1a343fp+0, -0x1.a4e76ce8c0e5ep-4}, {0x1.12358f08ae5bap+0, -0x1.1973c5a611cccp-4},
        {0x1.0953f419900a7p+0, -0x1.252f438e10c1ep-5}, {0x1.0000000000000p+0, 0.0},
        {0x1.e608cfd9a47acp-1, 0x1.aa5aa5df25984p-5}, {0x1.ca4b31f026aa0p-1, 0x1.c5e53aa362eb4p-4},
        {0x1.b2036576afce6p-1, 0x1.526e57720db08p-3}, {0x1.9c2d163a1aa2dp-1, 0x1.bc2860d224770p-3},
        {0x1.886e6037841edp-1, 0x1.1058bc8a07ee1p-2}, {0x1.767dcf5534862p-1, 0x1.4043057b6ee09p-2},
    };

    private static final double SHIFT = 0x1.8p52; // adding it rounds to a whole number
    private static final double INVERSE_LN2 = 0x1.71547652b82fep+5; // 32 of them

    private Elementary() {}

    static float exp(float x) {
        if (!(Math.abs(x) < 86f)) return (float) Math.exp(x); // far from what a softmax needs
        final double shifted = fma(INVERSE_LN2, x, SHIFT);
        final long bits = Double.doubleToRawLongBits(shifted);
        final double r = fma(INVERSE_LN2, x, -(shifted - SHIFT));
        final double scale = Double.longBitsToDouble(EXP[(int) (bits & 31)] + (bits << 47));
        final double high = fma(0x1.c6af84b912394p-20, r, 0x1.ebfce50fac4f3p-13);
        final double low = fma(0x1.62e42ff0c52d6p-6, r, 1.0);
        return (float) (fma(high, r * r, low) * scale);
    }

    static float log(float x) {
        if (x == 1f) return 0f;
        if (!(x >= Float.MIN_NORMAL && x <= Float.MAX_VALUE)) return (float) Math.log(x);
        final int bits = Float.floatToRawIntBits(x);
        final int above = bits - 0x3f330000;
        final double[] part = LOG[(above >>> 19) & 15];
        final double z = Float.intBitsToFloat(bits - (above & 0xff800000));
        final double r = fma(z, part[0], -1.0);
        final double y0 = fma(above >> 23, 0x1.62e42fefa39efp-1, part[1]);
        final double square = r * r;
        double y = fma(0x1.5575b0be00b6ap-2, r, -0x1.ffffef20a4123p-2);
        y = fma(-0x1.00ea348b88334p-2, square, y);
        return (float) fma(y, square, y0 + r);
    }

    private static double fma(double a, double b, double c) {
        return FUSED ? Math.fma(a, b, c) : a * b + c;
    }

    private static boolean cpuHasFma() {
        try {
            return Files.readString(Path.of("/proc/cpuinfo")).contains(" fma ");
        } catch (IOException error) {
            return false;
        }
    }
}

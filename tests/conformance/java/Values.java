// SPDX-License-Identifier: Apache-2.0
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.zip.CRC32;
import org.meron.Dtype;
import org.meron.View;

/** The values that cases write and expect, as a rank of a world sees them. */
final class Values {
    /** The library did what it should not. */
    static final class Failed extends RuntimeException {
        private static final long serialVersionUID = 1;

        Failed(String message) {
            super(message);
        }
    }

    private final int rank;
    private final int world;

    Values(int rank, int world) {
        this.rank = rank;
        this.world = world;
    }

    static void check(boolean holds, String what) {
        if (!holds) throw new Failed(what);
    }

    static void equal(String what, Object found, Object wanted) {
        check(found.equals(wanted), what + " is " + found + ", not " + wanted);
    }

    /** Whether a text holds a part, without regard to blanks and underscores. */
    static boolean holds(String text, String part) {
        return squeezed(text).contains(squeezed(part));
    }

    private static String squeezed(String text) {
        return text.replaceAll("[\\s_]", "");
    }

    static void has(String text, Table.Statement statement) {
        for (String part : statement.list("has")) check(holds(text, part), part + " is not in: " + text);
    }

    /** Elements `offset` to `offset + count` of the sum of terms that `text` is. */
    double[] of(String text, int count, long offset) {
        final double[] total = new double[count];
        for (String term : text.split("\\+")) {
            final int colon = term.indexOf(':');
            if (colon < 0) throw new Table.Malformed(text + " are no values");
            final String[] parts = term.substring(colon + 1).split("\\*");
            final double factor = parts.length > 1 ? Double.parseDouble(parts[1]) : 1;
            for (int k = 0; k < count; ++k) {
                total[k] += element(term.substring(0, colon), parts[0], offset + k) * factor;
            }
        }
        return total;
    }

    private double element(String kind, String argument, long index) {
        if (kind.equals("fill")) return Table.decimal(argument);
        final int seed = Integer.parseInt(argument);
        switch (kind) {
            case "pattern": return pattern(index, seed);
            case "rank": return pattern(index, seed + rank);
            case "ranks":
            case "mean":
                double sum = 0;
                for (int r = 0; r < world; ++r) sum += pattern(index, seed + r);
                return kind.equals("mean") ? sum / world : sum;
            default: throw new Table.Malformed("unknown values " + kind);
        }
    }

    private static double pattern(long index, int seed) {
        return (Math.floorMod(7 * index + 13L * seed, 61L) - 30) / 8.0;
    }

    /** A direct buffer of values in a dtype, in which they must be exact. */
    ByteBuffer buffer(String text, Dtype dtype, int count) {
        final ByteBuffer out = ByteBuffer.allocateDirect(count * dtype.bytes());
        out.order(ByteOrder.nativeOrder());
        put(out, of(text, count, 0), dtype);
        return out;
    }

    static void put(ByteBuffer to, double[] values, Dtype dtype) {
        for (int k = 0; k < values.length; ++k) {
            if (dtype.bytes() == 8) {
                if (dtype == Dtype.F64) to.putDouble(8 * k, values[k]);
                else to.putLong(8 * k, (long) values[k]);
                continue;
            }
            final float value = (float) values[k];
            if (dtype == Dtype.F32) {
                to.putFloat(4 * k, value);
            } else {
                final short half = narrow(value, dtype);
                if (Float.compare(wide(half, dtype), value) != 0 && value != 0f) {
                    throw new Table.Malformed(value + " is not exact in " + dtype);
                }
                to.putShort(2 * k, half);
            }
        }
    }

    /** Writes elements of the values that `text` is through a view. */
    void assign(View view, String text) {
        final int count = Math.toIntExact(view.count());
        put(view.bytes(), of(text, count, view.offset()), view.dtype());
    }

    static double[] get(ByteBuffer from, Dtype dtype) {
        final double[] out = new double[from.limit() / dtype.bytes()];
        for (int k = 0; k < out.length; ++k) {
            out[k] = dtype == Dtype.F64 ? from.getDouble(8 * k)
                    : dtype == Dtype.I64 ? (double) from.getLong(8 * k)
                    : dtype == Dtype.F32 ? from.getFloat(4 * k) : wide(from.getShort(2 * k), dtype);
        }
        return out;
    }

    /** Holds elements from `offset` on against `is`, `crc` and `crcN`. */
    void checkData(Table.Statement statement, ByteBuffer data, Dtype dtype, long offset) {
        final String expected = statement.get("is");
        if (expected != null) {
            checkNear(get(data, dtype), expected, offset, statement.number("within", 0));
        }
        for (String key : new String[] {"crc", "crc" + world}) {
            final String wanted = statement.get(key);
            if (wanted == null) continue;
            equal("the CRC", String.format("%08x", crc(data)), wanted);
        }
    }

    static long crc(ByteBuffer data) {
        final CRC32 crc = new CRC32();
        crc.update(data.duplicate());
        return crc.getValue();
    }

    void checkEqual(double[] found, String expected, long offset) {
        checkNear(found, expected, offset, 0);
    }

    private void checkNear(double[] found, String expected, long offset, double within) {
        final double[] wanted = of(expected, found.length, offset);
        for (int k = 0; k < found.length; ++k) {
            check(found[k] == wanted[k] || Math.abs(found[k] - wanted[k]) <= within
                    || Double.isNaN(found[k]) && Double.isNaN(wanted[k]),
                    "element " + (offset + k) + " is " + found[k] + ", not " + wanted[k]);
        }
    }

    private static short narrow(float value, Dtype dtype) {
        final int bits = Float.floatToRawIntBits(value);
        if (dtype == Dtype.BF16) return (short) (bits >>> 16);
        final int sign = bits >>> 16 & 0x8000;
        if (Float.isNaN(value)) return (short) (sign | 0x7E00);
        if (Float.isInfinite(value)) return (short) (sign | 0x7C00);
        if (value == 0f) return (short) sign;
        return (short) (sign | ((bits & 0x7FFFFFFF) - (112 << 23)) >>> 13);
    }

    private static float wide(short half, Dtype dtype) {
        if (dtype == Dtype.BF16) return Float.intBitsToFloat(half << 16);
        final int sign = (half & 0x8000) << 16;
        final int rest = (half & 0x7FFF) << 13;
        if (rest >= 0x7C00 << 13) return Float.intBitsToFloat(sign | 0x7F800000 | rest);
        final float size = Float.intBitsToFloat(rest) * 0x1p112f;
        return Float.intBitsToFloat(sign | Float.floatToRawIntBits(size));
    }
}

// SPDX-License-Identifier: Apache-2.0
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;

/** The values that tests write, in arrays and in direct buffers. */
final class Floats {
    private Floats() {}

    static float[] ramp(int count, float slope) {
        final float[] out = new float[count];
        for (int i = 0; i < count; ++i) out[i] = slope * i;
        return out;
    }

    static FloatBuffer direct(float[] values) {
        final FloatBuffer out = ByteBuffer.allocateDirect(4 * values.length)
                .order(ByteOrder.nativeOrder()).asFloatBuffer();
        out.duplicate().put(values);
        return out;
    }
}

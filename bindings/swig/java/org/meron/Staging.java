// SPDX-License-Identifier: Apache-2.0
package org.meron;

import java.lang.ref.WeakReference;
import java.nio.ByteBuffer;
import java.nio.FloatBuffer;
import java.util.ArrayList;
import java.util.List;

/**
 * Direct memory between float arrays and the library. Each thread keeps the memory of its last one until the
 * next collection, which allocateDirect starts if direct memory runs out. Only for calls that have ended with
 * the memory when they return.
 */
final class Staging implements AutoCloseable {
    private static final ThreadLocal<WeakReference<List<ByteBuffer>>> KEPT = new ThreadLocal<>();

    private final List<ByteBuffer> memory;
    private int used;

    Staging() {
        final WeakReference<List<ByteBuffer>> kept = KEPT.get();
        KEPT.remove(); // a callback within the call takes memory of its own
        final List<ByteBuffer> last = kept == null ? null : kept.get();
        memory = last == null ? new ArrayList<>() : last;
    }

    /** Room for so many floats. */
    FloatBuffer room(int floats) {
        if (used == memory.size()) memory.add(null);
        ByteBuffer found = memory.get(used);
        if (found == null || found.capacity() / Float.BYTES < floats) {
            found = Buffers.allocate(floats, Float.BYTES);
            memory.set(used, found);
        }
        ++used;
        return found.clear().limit(floats * Float.BYTES).slice().order(found.order())
                .asFloatBuffer();
    }

    /** A copy of an array. */
    FloatBuffer copy(float[] values) {
        final FloatBuffer out = room(values.length);
        out.duplicate().put(values);
        return out;
    }

    @Override
    public void close() {
        KEPT.set(new WeakReference<>(memory));
    }
}

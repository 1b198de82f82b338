// SPDX-License-Identifier: Apache-2.0
package org.meron.abi;

import java.nio.Buffer;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.CharBuffer;
import java.nio.DoubleBuffer;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;
import java.nio.LongBuffer;
import java.nio.ShortBuffer;
import org.meron.MeronException;
import org.meron.Status;

/** Checks buffers on their way to the library and back. */
final class Memory {
    private Memory() {}

    /** A buffer whose elements from its position to its limit the library may read. */
    static Buffer readable(Buffer buffer) {
        if (buffer == null) return null;
        if (!buffer.isDirect()) {
            throw new MeronException(Status.ARGUMENT,
                    "the buffer is not a direct one: make it with ByteBuffer.allocateDirect");
        }
        if (orderOf(buffer) != ByteOrder.nativeOrder()) {
            throw new MeronException(Status.ARGUMENT, "the buffer is " + orderOf(buffer)
                    + " on a machine that is " + ByteOrder.nativeOrder()
                    + ": make it with order(ByteOrder.nativeOrder())");
        }
        return buffer.position() == 0 && buffer.limit() == buffer.capacity() ? buffer : buffer.slice();
    }

    /** A buffer that the library may write, too. */
    static Buffer writable(Buffer buffer) {
        if (buffer != null && buffer.isReadOnly()) {
            throw new MeronException(Status.ARGUMENT, "the buffer is read-only");
        }
        return readable(buffer);
    }

    /** The library's memory as Java sees it. Read-only memory looks writable here: View sees to it. */
    static ByteBuffer visible(ByteBuffer memory) {
        return memory == null ? null : memory.order(ByteOrder.nativeOrder()); // null: an exception
    }

    private static ByteOrder orderOf(Buffer buffer) {
        if (buffer instanceof FloatBuffer) return ((FloatBuffer) buffer).order();
        if (buffer instanceof ShortBuffer) return ((ShortBuffer) buffer).order();
        if (buffer instanceof CharBuffer) return ((CharBuffer) buffer).order();
        if (buffer instanceof IntBuffer) return ((IntBuffer) buffer).order();
        if (buffer instanceof LongBuffer) return ((LongBuffer) buffer).order();
        if (buffer instanceof DoubleBuffer) return ((DoubleBuffer) buffer).order();
        return ByteOrder.nativeOrder(); // bytes have none
    }
}

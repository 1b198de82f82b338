// SPDX-License-Identifier: Apache-2.0
package org.meron;

import java.nio.Buffer;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.CharBuffer;
import java.nio.DoubleBuffer;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;
import java.nio.LongBuffer;
import java.nio.ShortBuffer;

/** Checks buffers on their way to the library, and makes direct ones. An error names the parameter. */
final class Buffers {
    private Buffers() {}

    /** A direct buffer of bytes, in any order: the library only moves them. */
    static <B extends Buffer> B direct(B buffer, String name) {
        Arguments.required(buffer, name);
        if (!buffer.isDirect()) {
            throw wrong(name, "is not a direct buffer: make it with ByteBuffer.allocateDirect");
        }
        if (!Scope.isCurrent(buffer)) {
            throw new MeronException(Status.STALE, name + " is a buffer of a view that has ended");
        }
        return buffer;
    }

    /** The same to write. */
    static <B extends Buffer> B writable(B buffer, String name) {
        if (Arguments.required(buffer, name).isReadOnly()) {
            throw wrong(name, "is a read-only buffer, and the call writes to it");
        }
        return direct(buffer, name);
    }

    /** A direct buffer of whole elements of a dtype: of their type, or of bytes in native order. */
    static <B extends Buffer> B elements(B buffer, Dtype dtype, String name) {
        Arguments.required(buffer, name);
        return elements(buffer, kindOf(Arguments.required(dtype, "dtype")), dtype.bytes(),
                dtype.name(), name);
    }

    /** The same for a dtype that the library knows by its name alone, whose buffers are of `kind`. */
    static <B extends Buffer> B elements(
            B buffer, Class<? extends Buffer> kind, int bytes, String dtype, String name) {
        direct(buffer, name);
        if (!(buffer instanceof ByteBuffer) && !kind.isInstance(buffer)) {
            throw wrong(name, "is " + named(typeOf(buffer)) + ", and its elements are " + dtype
                    + ": pass " + named(kind)
                    + (kind == ByteBuffer.class ? "" : " or a ByteBuffer"));
        }
        if (bytes > 1) nativeOrder(buffer, name);
        final long length = bytesIn(buffer);
        if (length % bytes != 0) {
            throw wrong(name, "has " + length + " bytes, which are no whole elements of " + dtype
                    + " of " + bytes + " bytes");
        }
        return buffer;
    }

    /** A direct buffer in native order, of elements whose dtype a file says. */
    static <B extends Buffer> B nativeOrder(B buffer, String name) {
        direct(buffer, name);
        if (orderOf(buffer) != ByteOrder.nativeOrder()) {
            throw wrong(name, "is " + orderOf(buffer) + ", and this machine is "
                    + ByteOrder.nativeOrder()
                    + ": call order(ByteOrder.nativeOrder()) on its ByteBuffer before you fill it");
        }
        return buffer;
    }

    /** Room for so many bytes, in native order. */
    static ByteBuffer allocate(int elements, int bytes) {
        return ByteBuffer.allocateDirect(Math.multiplyExact(elements, bytes))
                .order(ByteOrder.nativeOrder());
    }

    /** The buffer type of a dtype's elements. */
    private static Class<? extends Buffer> kindOf(Dtype dtype) {
        switch (dtype) {
            case F32: return FloatBuffer.class;
            case F64: return DoubleBuffer.class;
            case I64: return LongBuffer.class;
            default: return ShortBuffer.class;
        }
    }

    private static Class<?> typeOf(Buffer buffer) {
        for (Class<?> type : new Class<?>[] {FloatBuffer.class, DoubleBuffer.class, IntBuffer.class,
                LongBuffer.class, ShortBuffer.class, CharBuffer.class}) {
            if (type.isInstance(buffer)) return type;
        }
        return ByteBuffer.class;
    }

    private static String named(Class<?> type) {
        return (type == IntBuffer.class ? "an " : "a ") + type.getSimpleName();
    }

    /** Bytes from position to limit. */
    static long bytesIn(Buffer buffer) {
        final long count = buffer.remaining();
        if (buffer instanceof DoubleBuffer || buffer instanceof LongBuffer) return 8 * count;
        if (buffer instanceof FloatBuffer || buffer instanceof IntBuffer) return 4 * count;
        if (buffer instanceof ShortBuffer || buffer instanceof CharBuffer) return 2 * count;
        return count;
    }

    private static ByteOrder orderOf(Buffer buffer) {
        if (buffer instanceof ByteBuffer) return ((ByteBuffer) buffer).order();
        if (buffer instanceof FloatBuffer) return ((FloatBuffer) buffer).order();
        if (buffer instanceof ShortBuffer) return ((ShortBuffer) buffer).order();
        if (buffer instanceof CharBuffer) return ((CharBuffer) buffer).order();
        if (buffer instanceof IntBuffer) return ((IntBuffer) buffer).order();
        if (buffer instanceof LongBuffer) return ((LongBuffer) buffer).order();
        return ((DoubleBuffer) buffer).order();
    }

    private static MeronException wrong(String name, String what) {
        return new MeronException(Status.ARGUMENT, name + " " + what);
    }
}

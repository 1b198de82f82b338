// SPDX-License-Identifier: Apache-2.0
package org.meron;

import java.nio.Buffer;
import java.nio.ByteBuffer;
import java.nio.DoubleBuffer;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;
import java.nio.LongBuffer;
import java.nio.ShortBuffer;
import java.util.Arrays;
import org.meron.abi.checkpoint_tensors;

/**
 * A tensor of the program's own, or a part of one, that goes into a checkpoint. Its elements are in a
 * direct buffer in native order, from its position to its limit: one of the elements' type, or of bytes.
 * They are not copied: a save reads them until Context.awaitCopied.
 */
public final class CheckpointTensor {
    /** Bytes of an element, and the buffer of one. */
    private enum Element {
        F64(DoubleBuffer.class, 8), F32(FloatBuffer.class, 4), F16(ShortBuffer.class, 2),
        BF16(ShortBuffer.class, 2), I64(LongBuffer.class, 8), I32(IntBuffer.class, 4),
        I16(ShortBuffer.class, 2), I8(ByteBuffer.class, 1), U64(LongBuffer.class, 8),
        U32(IntBuffer.class, 4), U16(ShortBuffer.class, 2), U8(ByteBuffer.class, 1),
        BOOL(ByteBuffer.class, 1), F8_E4M3(ByteBuffer.class, 1), F8_E5M2(ByteBuffer.class, 1);

        final Class<? extends Buffer> kind;
        final int bytes;

        Element(Class<? extends Buffer> kind, int bytes) {
            this.kind = kind;
            this.bytes = bytes;
        }

        static Element of(String dtype, String name) {
            for (Element each : values()) {
                if (each.name().equals(dtype)) return each;
            }
            throw new MeronException(Status.ARGUMENT, "tensor " + name + " has dtype " + dtype
                    + ": known are " + Arrays.toString(values()));
        }
    }

    private final String name;
    private final Element element;
    private final long[] shape;
    final Buffer data;
    private long begin;
    private String kind; // null: "extra"

    /**
     * A tensor of any dtype that safetensors has: "F32", "BF16", "I64", "BOOL", ...
     *
     * @param name  1 to 512 bytes of UTF-8
     * @param shape of the whole tensor, row-major; none is a scalar
     */
    public CheckpointTensor(String name, String dtype, Buffer data, long... shape) {
        this.name = Arguments.required(name, "name");
        this.element = Element.of(Arguments.required(dtype, "dtype"), name);
        this.shape = Arguments.required(shape, "shape").clone();
        this.data = Buffers.elements(data, element.kind, element.bytes, dtype, "data");
    }

    /** A tensor of F32. */
    public CheckpointTensor(String name, FloatBuffer data, long... shape) {
        this(name, "F32", data, shape);
    }

    /** A tensor of F64. */
    public CheckpointTensor(String name, DoubleBuffer data, long... shape) {
        this(name, "F64", data, shape);
    }

    /** A tensor of I32. */
    public CheckpointTensor(String name, IntBuffer data, long... shape) {
        this(name, "I32", data, shape);
    }

    /** A tensor of I64. */
    public CheckpointTensor(String name, LongBuffer data, long... shape) {
        this(name, "I64", data, shape);
    }

    /**
     * The elements are those from `value` on, row-major: the ranks of a save have each element of a
     * tensor once.
     */
    public CheckpointTensor partFrom(long value) {
        begin = ContextOptions.notNegative("partFrom", value);
        return this;
    }

    /**
     * Its kind, instead of "extra": "values" for a buffer of a model, "exp_avg" or "state.KEY" for a
     * state of an optimizer (docs/checkpoint-format.md).
     */
    public CheckpointTensor kind(String value) {
        kind = value;
        return this;
    }

    static checkpoint_tensors table(CheckpointTensor... tensors) {
        final checkpoint_tensors table = new checkpoint_tensors();
        try {
            for (CheckpointTensor each : tensors) each.addTo(table);
        } catch (RuntimeException failed) {
            table.delete();
            throw failed;
        }
        return table;
    }

    private void addTo(checkpoint_tensors table) {
        final long count = Buffers.bytesIn(data) / element.bytes;
        table.add(name, kind, element.name(), shape, begin, count, data);
    }
}

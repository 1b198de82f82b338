// SPDX-License-Identifier: Apache-2.0
package org.meron;

import java.nio.Buffer;
import java.nio.DoubleBuffer;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;
import java.nio.LongBuffer;
import java.util.Map;
import org.meron.abi.checkpoint_tensors;

/**
 * A tensor of the program's own, or a part of one, that goes into a checkpoint. Its elements are in a
 * direct buffer in the machine's byte order, from its position to its limit. They are not copied: a
 * save reads them until Context.awaitCopied.
 */
public final class CheckpointTensor {
    private static final Map<String, Integer> SIZES = Map.ofEntries(Map.entry("F64", 8),
            Map.entry("F32", 4), Map.entry("F16", 2), Map.entry("BF16", 2), Map.entry("I64", 8),
            Map.entry("I32", 4), Map.entry("I16", 2), Map.entry("I8", 1), Map.entry("U64", 8),
            Map.entry("U32", 4), Map.entry("U16", 2), Map.entry("U8", 1), Map.entry("BOOL", 1),
            Map.entry("F8_E4M3", 1), Map.entry("F8_E5M2", 1));

    private final String name;
    private final String dtype;
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
        if (!SIZES.containsKey(dtype)) {
            throw new MeronException(Status.ARGUMENT, "tensor " + name + " has dtype " + dtype
                    + ": known are " + SIZES.keySet());
        }
        this.name = name;
        this.dtype = dtype;
        this.data = data;
        this.shape = shape.clone();
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
        final int size = SIZES.get(dtype);
        final long bytes = (long) data.remaining() * elementBytes();
        if (bytes % size != 0) {
            throw new MeronException(Status.ARGUMENT, "the buffer of tensor " + name + " has " + bytes
                    + " bytes, which are no whole elements of " + dtype);
        }
        table.add(name, kind, dtype, shape, begin, bytes / size, data);
    }

    private int elementBytes() {
        if (data instanceof DoubleBuffer || data instanceof LongBuffer) return 8;
        if (data instanceof FloatBuffer || data instanceof IntBuffer) return 4;
        if (data instanceof java.nio.ShortBuffer || data instanceof java.nio.CharBuffer) return 2;
        return 1;
    }
}

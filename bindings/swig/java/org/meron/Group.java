// SPDX-License-Identifier: Apache-2.0
package org.meron;

import java.nio.Buffer;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import org.meron.abi.Abi;

/**
 * Some ranks, and collectives on plain memory. The ranks of a group begin their collectives in the
 * same order; those that diverge get MISMATCH, which names both calls. An error of class -3xx is
 * sticky: it breaks the group on every rank.
 */
public final class Group extends GroupMethods {
    private final Context context;
    private final int rank;
    private final int size;

    Group(Context context, long handle) {
        super(new Release(handle, Abi::meron_group_release));
        this.context = context;
        rank = Abi.meron_group_rank(handle);
        size = Abi.meron_group_size(handle);
    }

    @Override
    Context context() {
        return context;
    }

    /** This rank's place in the group. */
    public int rank() {
        return rank;
    }

    /** The number of ranks in the group. */
    public int size() {
        return size;
    }

    /** Throws the error that broke the group; returns while it is whole. Never blocks. */
    public void check() {
        requireOpen();
        call(handle -> Abi.meron_group_status(handle));
    }

    /**
     * Begins a broadcast of the bytes from position to limit of a direct buffer, which is read on
     * rank `root` of the group and written elsewhere. It is kept until the future has ended.
     */
    public Future broadcast(Buffer data, int root) {
        requireOpen();
        return new Future(
                context, call(handle -> Abi.meron_broadcast_begin(handle, data, root)), data);
    }

    /**
     * Begins an all-reduce in place of the elements from position to limit of a direct buffer. Every
     * rank gets the same bits. MAX and MIN are NaN if a rank's value is; a MEAN of I64 throws ARGUMENT.
     * Made for small arrays: gradients go by Unit.reduce.
     */
    public Future allReduce(Buffer data, Dtype dtype, ReduceOp op) {
        requireOpen();
        return new Future(context,
                call(handle -> Abi.meron_all_reduce_begin(handle, data, dtype.code(), op.code())),
                data);
    }

    /** All-reduces an array in place, and waits. */
    public void allReduce(float[] values, ReduceOp op) {
        final FloatBuffer copy = direct(values);
        try (Future summed = allReduce(copy, Dtype.F32, op)) {
            summed.await();
        }
        copy.get(values);
    }

    /** All-reduces an array of doubles in place, and waits. Sums are in f64. */
    public void allReduce(double[] values, ReduceOp op) {
        final ByteBuffer copy = bytes(values.length);
        copy.asDoubleBuffer().put(values);
        try (Future summed = allReduce(copy, Dtype.F64, op)) {
            summed.await();
        }
        copy.asDoubleBuffer().get(values);
    }

    /** All-reduces an array of integers in place, and waits. A sum that overflows wraps around. */
    public void allReduce(long[] values, ReduceOp op) {
        final ByteBuffer copy = bytes(values.length);
        copy.asLongBuffer().put(values);
        try (Future summed = allReduce(copy, Dtype.I64, op)) {
            summed.await();
        }
        copy.asLongBuffer().get(values);
    }

    private static ByteBuffer bytes(int numbers) {
        return ByteBuffer.allocateDirect(Math.multiplyExact(numbers, 8))
                .order(ByteOrder.nativeOrder());
    }

    /** A direct copy of an array. */
    static FloatBuffer direct(float[] values) {
        final FloatBuffer out = ByteBuffer.allocateDirect(Math.multiplyExact(values.length, 4))
                .order(ByteOrder.nativeOrder()).asFloatBuffer();
        out.duplicate().put(values);
        return out;
    }
}

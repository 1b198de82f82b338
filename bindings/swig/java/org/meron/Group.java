// SPDX-License-Identifier: Apache-2.0
package org.meron;

import java.nio.Buffer;
import java.nio.ByteBuffer;
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

    /** Broadcasts, and waits. Else as broadcastBegin. */
    public void broadcast(Buffer data, int root) {
        broadcastBegin(data, root).finish();
    }

    /**
     * Begins a broadcast of the bytes from position to limit of a direct buffer of any type. Rank `root` of
     * the group reads them, and the other ranks write them. Leave the buffer alone until the operation has
     * ended; it is kept from the collector.
     *
     * @throws MeronException ARGUMENT for a root beyond the group, a buffer that is not direct or that is
     *     read-only, MISMATCH, -3xx.
     */
    public Operation broadcastBegin(Buffer data, int root) {
        Buffers.writable(data, "data");
        requireOpen();
        return new Operation(
                context, call(handle -> Abi.meron_broadcast_begin(handle, data, root)), data);
    }

    /** All-reduces, and waits. Else as allReduceBegin. */
    public void allReduce(Buffer data, Dtype dtype, ReduceOp op) {
        allReduceBegin(data, dtype, op).finish();
    }

    /**
     * Begins an all-reduce in place of the elements from position to limit of a direct buffer in native
     * order: one of the elements' type, or of bytes. Every rank gets the same bits. MAX and MIN are NaN if a
     * rank's value is. Made for small arrays: gradients go by Unit.reduce. Leave the buffer alone until the
     * operation has ended; it is kept from the collector.
     *
     * @throws MeronException ARGUMENT for a MEAN of I64, and for a buffer of another type or order, not
     *     direct or read-only; MISMATCH, -3xx.
     */
    public Operation allReduceBegin(Buffer data, Dtype dtype, ReduceOp op) {
        Buffers.elements(data, dtype, "data");
        Buffers.writable(data, "data");
        Arguments.required(op, "op");
        requireOpen();
        return new Operation(context,
                call(handle -> Abi.meron_all_reduce_begin(handle, data, dtype.code(), op.code())),
                data);
    }

    /** All-reduces an array in place, and waits. */
    public void allReduce(float[] values, ReduceOp op) {
        final ByteBuffer copy =
                Buffers.allocate(Arguments.required(values, "values").length, Float.BYTES);
        copy.asFloatBuffer().put(values);
        allReduce(copy, Dtype.F32, op);
        copy.asFloatBuffer().get(values);
    }

    /** All-reduces an array of doubles in place, and waits. Sums are in f64. */
    public void allReduce(double[] values, ReduceOp op) {
        final ByteBuffer copy =
                Buffers.allocate(Arguments.required(values, "values").length, Double.BYTES);
        copy.asDoubleBuffer().put(values);
        allReduce(copy, Dtype.F64, op);
        copy.asDoubleBuffer().get(values);
    }

    /** All-reduces an array of integers in place, and waits. A sum that overflows wraps around. */
    public void allReduce(long[] values, ReduceOp op) {
        final ByteBuffer copy =
                Buffers.allocate(Arguments.required(values, "values").length, Long.BYTES);
        copy.asLongBuffer().put(values);
        allReduce(copy, Dtype.I64, op);
        copy.asLongBuffer().get(values);
    }
}

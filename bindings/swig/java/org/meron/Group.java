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
     * rank gets the same bits. Made for small arrays: gradients go by Unit.reduce.
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

    /** A direct copy of an array. */
    static FloatBuffer direct(float[] values) {
        final FloatBuffer out = ByteBuffer.allocateDirect(Math.multiplyExact(values.length, 4))
                .order(ByteOrder.nativeOrder()).asFloatBuffer();
        out.duplicate().put(values);
        return out;
    }
}

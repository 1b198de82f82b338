// SPDX-License-Identifier: Apache-2.0
package org.meron;

import org.meron.abi.Abi;
import org.meron.abi.meron_reduce_options;

/** How gradients are reduced. By default: a mean over the ranks, before a step. */
public final class ReduceOptions {
    private ReduceOp op;
    private boolean boundary;
    private double divisor;
    private long stream;

    /** The library's defaults. */
    public ReduceOptions() {
        final meron_reduce_options initial = Abi.meron_reduce_options_init();
        op = ReduceOp.values()[initial.getOp()];
        boundary = initial.getBoundary() != 0;
        divisor = initial.getDivisor();
        initial.delete();
    }

    /** Whether values are averaged over the ranks. */
    public ReduceOptions op(ReduceOp op) {
        this.op = op;
        return this;
    }

    /** Whether this is the last micro-batch before the step. */
    public ReduceOptions boundary(boolean boundary) {
        this.boundary = boundary;
        return this;
    }

    /** The sum is divided by this too, for example by the number of micro-batches. */
    public ReduceOptions divisor(double divisor) {
        this.divisor = divisor;
        return this;
    }

    /**
     * The address of a stream of the context's device (a cudaStream_t): gradients on the device are read
     * after what was asked of it so far. Default: 0, the device's default stream.
     */
    public ReduceOptions stream(long stream) {
        this.stream = stream;
        return this;
    }

    ReduceOp op() {
        return op;
    }

    boolean boundary() {
        return boundary;
    }

    double divisor() {
        return divisor;
    }

    long stream() {
        return stream;
    }
}

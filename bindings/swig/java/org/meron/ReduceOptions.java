// SPDX-License-Identifier: Apache-2.0
// Generated from include/meron/*.h by tools/generate/generate.py: do not edit.
package org.meron;

import org.meron.abi.Abi;
import org.meron.abi.meron_reduce_options;
import org.meron.abi.meron_source_list;

/** Options of a reduction. */
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

    /** The operation that combines the values of the ranks. */
    public ReduceOptions op(ReduceOp value) {
        op = Arguments.required(value, "value");
        return this;
    }

    /** True for the last micro-batch before the step. */
    public ReduceOptions boundary(boolean value) {
        boundary = value;
        return this;
    }

    /**
     * Additional divisor of the sum, e.g. the number of micro-batches, times the loss scale.
     * The complete sum is divided once, as the call with `boundary` 1 says; in each call all
     * ranks pass the same. With a codec that has feedback, give the same one for each
     * micro-batch of an accumulation: what was lost of the accumulation before is scaled by the
     * change, so that it counts as much as it did.
     */
    public ReduceOptions divisor(double value) {
        divisor = value;
        return this;
    }

    /**
     * Sources on the device are read after the queued work of this stream; by default the
     * device's default stream.
     */
    public ReduceOptions stream(long value) {
        stream = value;
        return this;
    }

    ReduceOp op() {
        return op;
    }

    long reduceBegin(long unit, meron_source_list sources) {
        return Abi.meron_reduce_begin(
                unit,
                sources,
                op.ordinal(),
                boundary ? 1 : 0,
                divisor,
                stream);
    }

    long reduceFinishBegin(long unit) {
        return Abi.meron_reduce_finish_begin(
                unit,
                op.ordinal(),
                boundary ? 1 : 0,
                divisor,
                stream);
    }
}

// SPDX-License-Identifier: Apache-2.0
package org.meron;

import org.meron.abi.Abi;
import org.meron.abi.meron_param_info;

/** A named tensor that the ranks of a group share. Made by Context.param. */
public final class Param extends ParamMethods implements Gatherable {
    private final Context context;
    private final String name;
    private final Dtype dtype;
    private final long[] shape;
    private final long count;
    private final boolean frozen;
    volatile Unit unit; // that it is in

    Param(Context context, long handle) {
        super(new Release(handle, Abi::meron_param_release));
        this.context = context;
        final meron_param_info info = Abi.meron_param_get_info(handle);
        name = Abi.meron_param_name(handle);
        dtype = Dtype.of(info.getDtype());
        shape = new long[info.getDims()];
        for (int i = 0; i < shape.length; ++i) shape[i] = info.shape_at(i);
        count = info.getCount();
        frozen = info.getFrozen() != 0;
        info.delete();
    }

    @Override
    Context context() {
        return context;
    }

    /** Unique in the context. */
    public String name() {
        return name;
    }

    /** Of the values that are gathered. */
    @Override
    public Dtype dtype() {
        return dtype;
    }

    /** Sizes, row-major. */
    public long[] shape() {
        return shape.clone();
    }

    /** Elements of the whole tensor. */
    @Override
    public long count() {
        return count;
    }

    /** Whether it has no gradient and no optimizer state. */
    public boolean frozen() {
        return frozen;
    }

    /** The first element that this rank updates. */
    public long shardOffset() {
        final meron_param_info info = info();
        final long out = info.getShard_offset();
        info.delete();
        return out;
    }

    /** Number of elements that this rank updates; 0 before the param is in a unit. */
    public long shardCount() {
        final meron_param_info info = info();
        final long out = info.getShard_count();
        info.delete();
        return out;
    }

    /** Index of its flat in Unit.flats; 0 before the param is in a unit. */
    public int flat() {
        final meron_param_info info = info();
        final int out = (int) info.getFlat();
        info.delete();
        return out;
    }

    /** Elements of its flat before the param; 0 before it is in a unit. */
    public long flatOffset() {
        final meron_param_info info = info();
        final long out = info.getFlat_offset();
        info.delete();
        return out;
    }

    /** The place for this rank's gradient, zero or the sum so far: add to it. See the other one. */
    public View gradient() {
        return gradient(false);
    }

    /**
     * The place for this rank's gradient, writable, valid until Unit.reduce, in the plan's gradient dtype.
     * By default full gradients of a 16-bit param are F32 from the second micro-batch on. Blocks on peers
     * that still read what was there last. Throws STATE (frozen, not in a unit, or reduced and not used), -3xx.
     *
     * @param overwrite whether the caller writes every element, so that it need not be zero before
     */
    public View gradient(boolean overwrite) {
        requireOpen();
        final int flags = overwrite ? Abi.MERON_GRADIENT_OVERWRITE : 0;
        return call(handle -> new View(context, this, loan(Unit::gradientLoan),
                Abi.meron_gradient_view(handle, flags)));
    }

    /**
     * The reduced gradient of the part that this rank updates, F32, writable; for an optimizer of the
     * trainer's own. Valid until the unit's next gradient, a step, or Unit.discard. Throws STATE when
     * no reduction at a boundary has ended.
     */
    public View reduced() {
        requireOpen();
        return call(handle -> new View(
                context, this, loan(Unit::reducedLoan), Abi.meron_reduced_view(handle)));
    }

    /**
     * The same as a DLPack tensor for native libraries of this process, of one dimension. It lends the
     * gradient until it is closed: until then a step, Unit.consume, Unit.discard and Unit.destroy throw
     * STATE. Errors as reduced.
     */
    public DlpackTensor reducedDlpack() {
        requireOpen();
        return call(handle -> DlpackTensor.take(Abi.meron_reduced_dlpack(handle)));
    }

    @Override
    public String toString() {
        return "Param[" + name + ": " + dtype + " " + java.util.Arrays.toString(shape) + "]";
    }

    private Loan loan(java.util.function.Function<Unit, Loan> which) {
        final Unit home = unit;
        return home == null ? new Loan() : which.apply(home);
    }

    private meron_param_info info() {
        requireOpen();
        return call(handle -> Abi.meron_param_get_info(handle));
    }
}

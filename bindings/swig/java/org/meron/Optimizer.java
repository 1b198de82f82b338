// SPDX-License-Identifier: Apache-2.0
package org.meron;

import org.meron.abi.Abi;
import org.meron.abi.meron_optimizer_info;

/** States and update rule for some units. Made by Context.adamw. */
public final class Optimizer extends Handle {
    /** Which state. */
    public enum State {
        /** F32 values; the param itself where that is F32. */
        MASTER,
        /** First moment. */
        EXP_AVG,
        /** Second moment. */
        EXP_AVG_SQ
    }

    private final Context context;
    private final Unit[] units;
    private volatile Loan states = new Loan();

    Optimizer(Context context, AdamW options, Unit... units) {
        super(new Release(create(options, units), Abi::meron_optimizer_release));
        this.context = context;
        this.units = units.clone();
    }

    private static long create(AdamW options, Unit... units) {
        try {
            return Abi.meron_optimizer_create(handles(units), Abi.MERON_ADAMW, options.learningRate,
                    options.beta1, options.beta2, options.epsilon, options.weightDecay,
                    options.maxNorm);
        } finally {
            java.lang.ref.Reference.reachabilityFence(units);
        }
    }

    /** Sets the learning rate of the next steps, the same on all ranks. */
    public void learningRate(double value) {
        context.requireOpen();
        call(handle -> Abi.meron_optimizer_set_learning_rate(handle, value));
    }

    /** The learning rate of the next steps. */
    public double learningRate() {
        return info(meron_optimizer_info::getLearning_rate);
    }

    /** Steps taken so far. */
    public long steps() {
        return info(meron_optimizer_info::getSteps);
    }

    /** The global 2-norm of the last step's gradients, before clipping. */
    public double norm() {
        return info(meron_optimizer_info::getNorm);
    }

    /**
     * Begins a step: norm, clipping, update of this rank's parts, the next version. Needs the reduced
     * gradient of every unit, and no lease on any of them on this rank. Collective. Throws STATE
     * (names the unit); the future's await throws NONFINITE on all ranks when the norm is not finite:
     * then nothing was changed, and the gradients are discarded.
     */
    public Future step() {
        context.requireOpen();
        final long future = call(handle -> Abi.meron_optimizer_step_begin(handle));
        endStates();
        for (Unit unit : units) unit.endReduced();
        return new Future(context, future, null);
    }

    /**
     * This rank's part of a state of a param, F32. Writable, but for a master that is the param
     * itself. Valid until the next step or close. Throws ARGUMENT for a param of another optimizer.
     */
    public View state(Param param, State state) {
        context.requireOpen();
        try {
            return call(handle -> new View(context, this, states,
                    Abi.meron_optimizer_state_view(handle, param.handle(), state.ordinal())));
        } finally {
            java.lang.ref.Reference.reachabilityFence(param);
        }
    }

    /** Releases the optimizer and its states. A step under way keeps them until it has ended. */
    @Override
    public void close() {
        endStates();
        super.close();
    }

    private void endStates() {
        final Loan last = states;
        states = new Loan();
        last.end("the optimizer was stepped or closed: take a new view of its states");
    }

    private <T> T info(java.util.function.Function<meron_optimizer_info, T> field) {
        context.requireOpen();
        final meron_optimizer_info info = call(handle -> Abi.meron_optimizer_get_info(handle));
        try {
            return field.apply(info);
        } finally {
            info.delete();
        }
    }
}

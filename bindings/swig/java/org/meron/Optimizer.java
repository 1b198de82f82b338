// SPDX-License-Identifier: Apache-2.0
package org.meron;

import java.nio.FloatBuffer;
import java.nio.file.Path;
import org.meron.abi.Abi;
import org.meron.abi.meron_optimizer_info;
import org.meron.abi.meron_view;

/**
 * States and update rule for some units. Made by Context.adamw, adam, adagrad, lion and sgd. Params are in
 * groups: at first all in group 0, whose numbers the rule has.
 */
public final class Optimizer extends OptimizerMethods {
    /** Which state. */
    public enum State {
        /** F32 values; the param itself where that is F32. */
        MASTER,
        /** Average of the gradients; Lion's, and the momentum of SGD. */
        EXP_AVG,
        /** Average of their squares; Adagrad's sum of them. */
        EXP_AVG_SQ
    }

    private final Context context;
    private final Unit[] units;
    private volatile Loan written; // of the writable views of states
    private volatile Loan shown = new Loan(); // of the others

    Optimizer(Context context, UpdateRule<?> rule, Unit... units) {
        super(new Release(create(rule, units), Abi::meron_optimizer_release));
        this.context = context;
        this.units = units.clone();
        written = new Loan(context.states());
        context.states().add(this);
    }

    @Override
    Context context() {
        return context;
    }

    private static long create(UpdateRule<?> rule, Unit... units) {
        try {
            return Abi.meron_optimizer_create(handles("units", units), rule.kind, rule.learningRate,
                    rule.beta1, rule.beta2, rule.epsilon, rule.weightDecay, rule.maxNorm,
                    rule.dampening, rule.nesterov ? 1 : 0, rule.defaultsOf, rule.lrDecay);
        } finally {
            java.lang.ref.Reference.reachabilityFence(units);
        }
    }

    /** The learning rate of group 0 in the next steps. */
    public double learningRate() {
        return info(meron_optimizer_info::getLearning_rate);
    }

    /** Steps taken so far, from what was set. */
    public long steps() {
        return info(meron_optimizer_info::getSteps);
    }

    /** The global 2-norm of the last step's gradients, before clipping. */
    public double norm() {
        return info(meron_optimizer_info::getNorm);
    }

    /** How many groups of params there are, at least 1. */
    public int groups() {
        return info(meron_optimizer_info::getGroups);
    }

    /** How many states the rule keeps of an element, besides the master. */
    public int states() {
        return info(meron_optimizer_info::getStates);
    }

    /** Bytes of this rank's states on tier nvme. */
    public long nvmeBytes() {
        return info(meron_optimizer_info::getNvme_bytes);
    }

    /** Bytes of this rank's states that offload has moved off memory. */
    public long offloadedBytes() {
        return info(meron_optimizer_info::getOffloaded_bytes);
    }

    /**
     * Gives some params, none of them in a group that was added, numbers of their own, for example no
     * weight decay. All ranks must do the same before the next step. Throws ARGUMENT, DUPLICATE (a param is
     * in a group already), STATE (a step is under way).
     *
     * @return the group's number: 1, 2, ...
     */
    public int addGroup(OptimizerGroup group, Param... params) {
        Arguments.required(group, "group");
        requireOpen();
        try {
            return call(handle -> Abi.meron_optimizer_add_group(handle, handles("params", params),
                    group.defaultsOf, group.learningRate, group.beta1, group.beta2, group.epsilon,
                    group.weightDecay, group.lrDecay));
        } finally {
            java.lang.ref.Reference.reachabilityFence(params);
        }
    }

    /** A copy of a group's numbers: of 0, or what addGroup gave. Throws ARGUMENT for others. */
    public OptimizerGroup group(int number) {
        requireOpen();
        return new OptimizerGroup(
                call(handle -> Abi.meron_optimizer_get_group(handle, number)));
    }

    /** Sets the numbers of a group for the next steps, the same on all ranks. Throws ARGUMENT. */
    public void setGroup(int number, OptimizerGroup group) {
        Arguments.required(group, "group");
        requireOpen();
        call(handle -> Abi.meron_optimizer_set_group(handle, number,
                group.defaultsOf, group.learningRate, group.beta1, group.beta2, group.epsilon,
                group.weightDecay, group.lrDecay));
    }

    /**
     * Makes the next steps skip some params: their values, states and counts of steps stay as they are,
     * like those of a torch.optim param whose gradient is None. Replaces the params of the call before;
     * with none, no param is skipped. All ranks give the same params before the next step. Gradients of
     * skipped params still count in the norm. Throws ARGUMENT (a param that this optimizer does not
     * train), STATE (a step is under way).
     */
    public void skip(Param... params) {
        requireOpen();
        try {
            call(handle -> Abi.meron_optimizer_set_skipped(handle, handles("params", params)));
        } finally {
            java.lang.ref.Reference.reachabilityFence(params);
        }
    }

    /**
     * The number of steps that a param has taken: those of the optimizer, without the steps that skipped
     * it. Throws ARGUMENT for a param that this optimizer does not train.
     */
    public long paramSteps(Param param) {
        Arguments.required(param, "param");
        requireOpen();
        try {
            return call(handle -> Abi.meron_optimizer_param_steps(handle, param.handle()));
        } finally {
            java.lang.ref.Reference.reachabilityFence(param);
        }
    }

    /**
     * Sets the number of steps that one param has taken, at most 2^53 and the same on all ranks: for
     * states that begin anew (0, beside writeState of zeros) or come from elsewhere. steps(long) resets
     * it. Throws ARGUMENT (also for a param that this optimizer does not train), STATE (a step is under
     * way).
     */
    public void paramSteps(Param param, long steps) {
        Arguments.required(param, "param");
        requireOpen();
        try {
            call(handle -> Abi.meron_optimizer_set_param_steps(handle, param.handle(), steps));
        } finally {
            java.lang.ref.Reference.reachabilityFence(param);
        }
    }

    /**
     * Takes a step, and waits: norm, clipping, update of this rank's shards, the next version. Needs the
     * reduced gradient of every unit, and no lease on any of them on this rank. Collective.
     *
     * @throws MeronException STATE (names the unit); NONFINITE on all ranks if the norm is not finite: then
     *     nothing was changed, and the gradients are discarded; -3xx.
     */
    public void step() {
        stepBegin().finish();
    }

    /**
     * Begins a step. Throws STATE as step; the operation throws the rest. Other units can be gathered and
     * reduced before it has ended.
     */
    public Operation stepBegin() {
        requireOpen();
        final long future = call(handle -> Abi.meron_optimizer_step_begin(handle));
        endStates();
        for (Unit unit : units) unit.endReduced();
        return new Operation(context, future, null);
    }

    /**
     * This rank's shard of a state of a param, F32. Writable, except for a master that is the param itself.
     * Valid until the next step, offload, Context.load or close; a writable one also until the next
     * Context.save or export, even if that throws. Do not write to its buffers afterwards (View). Blocks
     * until a save has copied the states, and while another thread exports or loads. Throws ARGUMENT for a
     * param of another optimizer and for a state that the rule does not keep, UNSUPPORTED if it is on nvme,
     * or in 16 or 8 bits: use readState.
     */
    public View state(Param param, State state) {
        Arguments.required(param, "param");
        Arguments.required(state, "state");
        requireOpen();
        synchronized (context.states()) {
            try {
                return call(handle -> {
                    final meron_view view = Abi.meron_optimizer_state_view(
                            handle, param.handle(), state.ordinal());
                    if (view.getWritable() == 0) return new View(context, this, shown, view);
                    context.awaitCopied(); // what is written now is not of the save's moment
                    return new View(context, this, written, view);
                });
            } finally {
                java.lang.ref.Reference.reachabilityFence(param);
            }
        }
    }

    /**
     * A copy of this rank's shard of a state of a param, from any tier and dtype: param.shardCount()
     * numbers, at most 2^29 - 1. Blocks on this rank's drive if states are on nvme. Throws ARGUMENT as
     * state, STATE (a step is pending), IO, CORRUPT.
     */
    public float[] readState(Param param, State state) {
        Arguments.required(param, "param");
        final float[] out = new float[Math.toIntExact(param.shardCount())];
        try (Staging staging = new Staging()) {
            final FloatBuffer buffer = staging.room(out.length);
            readState(param, state, buffer);
            buffer.get(out);
        }
        return out;
    }

    /** The same into a direct buffer in native order, from its position to its limit. */
    public void readState(Param param, State state, FloatBuffer out) {
        Arguments.required(param, "param");
        Arguments.required(state, "state");
        Buffers.elements(out, Dtype.F32, "out");
        Buffers.writable(out, "out");
        requireOpen();
        try {
            call(handle -> Abi.meron_optimizer_read_state(
                    out, handle, param.handle(), state.ordinal()));
        } finally {
            java.lang.ref.Reference.reachabilityFence(param);
        }
    }

    /**
     * Replaces this rank's part of a state of a param by as many numbers; states of 16 or 8 bits are
     * rounded to nearest. A master that is the param itself is written through an update. Blocks and
     * throws as readState.
     */
    public void writeState(Param param, State state, float[] values) {
        Arguments.required(values, "values");
        try (Staging staging = new Staging()) {
            writeState(param, state, staging.copy(values));
        }
    }

    /** The same from a direct buffer in native order, from its position to its limit. */
    public void writeState(Param param, State state, FloatBuffer values) {
        Arguments.required(param, "param");
        Arguments.required(state, "state");
        Buffers.elements(values, Dtype.F32, "values");
        requireOpen();
        try {
            call(handle -> Abi.meron_optimizer_write_state(
                    handle, param.handle(), state.ordinal(), values));
        } finally {
            java.lang.ref.Reference.reachabilityFence(param);
        }
    }

    /**
     * Moves this rank's states from memory to its file on a drive, and gives their memory back, for a
     * phase that needs it for something else, as DeepSpeed's offload_states does. Params can be gathered
     * meanwhile; reload before the next step. Views of states end. Blocks on this rank's drive.
     *
     * <p>Throws ARGUMENT (no folder, one that will not do), STATE (a step is under way, they are offloaded),
     * NO_SPACE, IO: they are where they were then.
     *
     * @param folder on a drive
     */
    public void offload(Path folder) {
        offloadTo(Arguments.required(folder, "folder").toString());
    }

    /** The same into the plan's folder, or the one that has this rank's file already. */
    public void offload() {
        offloadTo(null);
    }

    private void offloadTo(String folder) {
        requireOpen();
        call(handle -> Abi.meron_optimizer_offload(handle, folder));
        endStates();
    }

    /** Releases the optimizer and its states. A step under way keeps them until it has ended. */
    @Override
    public void close() {
        endStates();
        super.close();
    }

    /** Ends the views of states, or only those that are writable. */
    void endStates(String reason, boolean all) {
        final Loan last = written;
        written = new Loan(context.states());
        last.end(reason);
        if (all) {
            final Loan read = shown;
            shown = new Loan();
            read.end(reason);
        }
    }

    private void endStates() {
        endStates("the optimizer was stepped or closed: take a new view of its states", true);
    }

    private <T> T info(java.util.function.Function<meron_optimizer_info, T> field) {
        requireOpen();
        final meron_optimizer_info info = call(handle -> Abi.meron_optimizer_get_info(handle));
        try {
            return field.apply(info);
        } finally {
            info.delete();
        }
    }
}

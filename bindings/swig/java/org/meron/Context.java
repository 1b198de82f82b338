// SPDX-License-Identifier: Apache-2.0
package org.meron;

import java.lang.ref.Reference;
import java.nio.Buffer;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.function.Consumer;
import org.meron.abi.Abi;
import org.meron.abi.checkpoint_tensors;

/**
 * This rank's engine; everything is made from it. Opened by {@link #open()} or {@link #options()}.
 *
 * <p>All methods may be called from any thread. A call that waits for peers ends at the context's
 * deadline, or with CANCELLED if its thread is interrupted (the thread's interrupt flag stays set) or
 * should_stop ends it; the operation continues.
 */
public final class Context extends ContextMethods {
    private final Lifetime lifetime;
    private final int rank;
    private final int worldSize;
    private final String transport;
    private final Group world;
    private final String device; // null: the host
    private final States states = new States();

    Context(Lifetime lifetime, String device) {
        super(lifetime);
        this.device = device == null || device.isEmpty() ? null : device;
        this.lifetime = lifetime;
        final long handle = lifetime.get();
        rank = Abi.meron_context_rank(handle);
        worldSize = Abi.meron_context_world_size(handle);
        transport = Abi.meron_context_transport(handle);
        world = new Group(this, Abi.meron_context_world(handle));
    }

    /** Opens a context with all defaults: rank and world size come from the environment. */
    public static Context open() {
        return options().open();
    }

    /** How a context is opened: set what is not to be the default, then call open. */
    public static ContextOptions options() {
        return new ContextOptions();
    }

    /**
     * Closes the context: pending operations are cancelled, and everything made from it throws CLOSED.
     * Does not wait for peers; those that still need this rank get PEER_CLOSED. Do not touch buffers of
     * views afterwards: on Java 22 and later they throw IllegalStateException; before, their memory is
     * gone, and an access ends the process.
     */
    @Override
    public void close() {
        super.close();
    }

    /** This rank, 0 to worldSize() - 1. */
    public int rank() {
        return rank;
    }

    /** The number of ranks. */
    public int worldSize() {
        return worldSize;
    }

    /** "self", "local", "shm", "cluster", "mpi", or the name of a custom one. */
    public String transport() {
        return transport;
    }

    /** The group of all ranks. */
    public Group world() {
        return world;
    }

    /**
     * A group of some ranks, null on ranks outside of the list. Collective over the world: every rank
     * calls it with the same list. Throws ARGUMENT for a rank beyond the world or twice.
     */
    public Group group(int... ranks) {
        Arguments.required(ranks, "ranks");
        final long made = call(handle -> Abi.meron_group_create(handle, ranks));
        return made == 0 ? null : new Group(this, made);
    }

    /** Registers a trainable param of the world. See the other one. */
    public Param param(String name, Dtype dtype, long... shape) {
        return param(name, dtype, shape, false, null);
    }

    /**
     * Registers a param. Collective over its group: all ranks register the same params in the same
     * order.
     *
     * @param name   unique in the context, 1 to 512 bytes of UTF-8
     * @param shape  sizes, row-major, each 0 or more; none is a scalar
     * @param frozen whether it has no gradient and no optimizer state
     * @param group  the ranks that share it; null is the world
     */
    public Param param(String name, Dtype dtype, long[] shape, boolean frozen, Group group) {
        Arguments.required(name, "name");
        Arguments.required(dtype, "dtype");
        Arguments.required(shape, "shape");
        final long made = call(handle -> Abi.meron_param_register(handle, dtype.code(), name, shape,
                frozen ? 1 : 0, group == null ? 0 : group.handle()));
        return new Param(this, made);
    }

    /**
     * Puts params together into a unit and reserves the memory that the plan gives it here. Values are
     * zero at first; an update writes them. Collective over the params' group. Throws DUPLICATE,
     * NO_MEMORY (with figures), ARGUMENT.
     */
    public Unit unit(String name, Param... params) {
        Arguments.required(name, "name");
        final long[] table = handles("params", params);
        final long made = call(handle -> Abi.meron_unit_create(handle, name, table));
        return new Unit(this, made, params);
    }

    /** Gathers several units as one operation and waits; else as Unit.gather. */
    public Gather gather(Unit... units) {
        requireOpen();
        return gatherBegin(Tier.DEVICE, units).full();
    }

    /**
     * Begins a gather of several units as one operation, without waiting.
     *
     * @param destinations for INTO a direct buffer per param or flat, of exactly its size; else null
     */
    public Gather gatherBegin(
            GatherMode mode, Map<? extends Gatherable, ? extends Buffer> destinations,
            Unit... units) {
        requireOpen();
        return Gather.begin(this, mode, Tier.DEVICE, destinations, units);
    }

    /** Begins a gather of several units as one operation, of views that are in `tier`. */
    public Gather gatherBegin(Tier tier, Unit... units) {
        requireOpen();
        return Gather.begin(this, GatherMode.VIEW, tier, null, units);
    }

    /** Begins an update of several units and waits; else as Unit.update. */
    public Update update(Unit... units) {
        requireOpen();
        return new Update(this, units);
    }

    /** Updates several units' values by the body, as Unit.update. */
    public void update(Consumer<Update> body, Unit... units) {
        Arguments.required(body, "body");
        Update.run(update(units), body);
    }

    /** An optimizer by AdamW with the defaults of {@link AdamW}. */
    public Optimizer adamw(Unit... units) {
        return adamw(new AdamW(), units);
    }

    /**
     * An optimizer by AdamW for the trainable params of some units. Its states are zero at first, and lie
     * where and as the plan says. Collective over the units' group. Throws ARGUMENT, DUPLICATE (a unit
     * that has an optimizer), NO_MEMORY; with states on tier nvme also NO_SPACE, NOT_FOUND, IO. Blocks on
     * this rank's drive where states lie on nvme: they are written once here; never on peers.
     */
    public Optimizer adamw(AdamW rule, Unit... units) {
        return optimizer(rule, units);
    }

    /** An optimizer by Adam, else as adamw. */
    public Optimizer adam(Adam rule, Unit... units) {
        return optimizer(rule, units);
    }

    /** An optimizer by Adagrad, else as adamw. */
    public Optimizer adagrad(Adagrad rule, Unit... units) {
        return optimizer(rule, units);
    }

    /** An optimizer by Lion, else as adamw. */
    public Optimizer lion(Lion rule, Unit... units) {
        return optimizer(rule, units);
    }

    /** An optimizer by stochastic gradient descent, else as adamw. */
    public Optimizer sgd(Sgd rule, Unit... units) {
        return optimizer(rule, units);
    }

    private Optimizer optimizer(UpdateRule<?> rule, Unit... units) {
        Arguments.required(rule, "rule");
        requireOpen();
        return new Optimizer(this, rule, units);
    }

    /** A schedule with the defaults of {@link ScheduleOptions}. */
    public Schedule schedule(Unit... units) {
        return schedule(new ScheduleOptions(), units);
    }

    /**
     * A schedule of some units, which are used by their index from then on. Collective over the units'
     * group: units and options are equal on all ranks. Throws ARGUMENT, DUPLICATE (a unit twice).
     */
    public Schedule schedule(ScheduleOptions options, Unit... units) {
        Arguments.required(options, "options");
        requireOpen();
        return new Schedule(this, options, units);
    }

    /**
     * Waits until the last reduction and the last end of an accumulation of each of these units have ended,
     * also those whose operation was closed. One call for many units, also of several groups; a unit with
     * no reduction counts as done. Errors as Operation.await; ARGUMENT for no unit, HANDLE for units of
     * several contexts.
     */
    public void awaitReductions(Unit... units) {
        reductionsEnded(Abi.MERON_TIMEOUT_DEFAULT, units);
    }

    /** Waits at most `timeout` for all of them. Returns false after the timeout; they continue. */
    public boolean awaitReductions(Duration timeout, Unit... units) {
        return reductionsEnded(Operation.nanoseconds(timeout), units);
    }

    /** Saves with the defaults of {@link SaveOptions}, and waits. See the other one. */
    public void save(Path folder, String name, Optimizer... optimizers) {
        save(folder, name, new SaveOptions(), optimizers);
    }

    /** Saves, and waits until all ranks have written their files. Else as saveBegin. */
    public void save(Path folder, String name, SaveOptions options, Optimizer... optimizers) {
        saveBegin(folder, name, options, optimizers).finish();
    }

    /** Begins a save with the defaults of {@link SaveOptions}. See the other one. */
    public Operation saveBegin(Path folder, String name, Optimizer... optimizers) {
        return saveBegin(folder, name, new SaveOptions(), optimizers);
    }

    /**
     * Begins to save the current states of all units as `name` in `folder`; {@link Operation#finish} waits.
     * All ranks see the folder, and the save creates it if it does not exist. Collective over the world.
     *
     * <p>The checkpoint is complete or does not exist, and any number of ranks can load it. A thread of
     * the library copies and writes while gathers, forward and backward continue; a step or an update
     * waits until its units are copied. The operation throws a failure of any rank on all ranks, and so does
     * the next save if no call has waited for the operation. Existing checkpoints stay, and training can
     * continue. Within an accumulation it has what the last update left, and gradients stay as they are.
     * Writable views of states end; Optimizer.state gives new ones as soon as the save has
     * copied the states. Buffers of ended views must not be written before awaitCopied.
     *
     * <p>Blocks until the previous save has ended. Throws ARGUMENT (an invalid name, `extra` is no JSON
     * object), DUPLICATE (the name is taken), STATE (a step is pending, a unit is in use),
     * UNSUPPORTED (a unit of some ranks only), NO_SPACE, IO.
     */
    public Operation saveBegin(
            Path folder, String name, SaveOptions options, Optimizer... optimizers) {
        Arguments.required(folder, "folder");
        Arguments.required(name, "name");
        Arguments.required(options, "options");
        Arguments.all(optimizers, "optimizers");
        requireOpen();
        final checkpoint_tensors table = CheckpointTensor.table(options.tensors);
        try {
            final long future = states.read("a save",
                    () -> call(handle -> Abi.meron_checkpoint_save_begin(handle,
                            folder.toString(), name, options.valuesOnly ? 1 : 0,
                            options.skipFrozen ? 1 : 0, options.overwrite ? 1 : 0, options.step,
                            options.keep, options.extra, handles("optimizers", optimizers),
                            table, options.mapping, options.perNode ? 1 : 0,
                            handles("units", options.units))));
            return new Operation(
                    this, future, options.tensors.length == 0 ? null : options.tensors);
        } finally {
            table.delete();
            Reference.reachabilityFence(optimizers);
        }
    }

    /**
     * Waits until the pending save has copied all its data. Returns at once if no save is pending, also
     * if it has failed. Blocks on the drive.
     */
    public void awaitCopied() {
        requireOpen();
        call(handle -> Abi.meron_checkpoint_wait_copied(handle, Abi.MERON_TIMEOUT_DEFAULT));
    }

    /** Waits at most `timeout`; false when that passed first. */
    public boolean awaitCopied(Duration timeout) {
        requireOpen();
        final long limit = Operation.nanoseconds(timeout);
        return call(handle -> Abi.meron_checkpoint_wait_copied(handle, limit)) == Abi.MERON_OK;
    }

    /** How far the save under way is, or how far the last one came. Never blocks. */
    public SaveProgress saveProgress() {
        requireOpen();
        return new SaveProgress(call(handle -> Abi.meron_checkpoint_get_progress(handle)));
    }

    /** Loads all of the newest complete checkpoint of a folder. See the other one. */
    public Checkpoint load(Path folder, Optimizer... optimizers) {
        return load(folder, null, new LoadOptions(), optimizers);
    }

    /**
     * Loads a checkpoint into all units, whatever world and plan saved it: values, masters, states, counts
     * of steps and the numbers of groups of the optimizers, which are given as they were to the save.
     * Collective over the world. Before anything changes, all ranks have compared names, shapes and
     * optimizers, and opened the files; an error after that breaks the group. Views of states end. Blocks
     * on the drive and on all ranks. Throws NOT_FOUND, CORRUPT (names tensor, file and offset), VERSION (of
     * a newer one), ARGUMENT (it does not fit: what is missing, unexpected and of another shape is
     * listed), STATE as save and for a gradient that is not empty, IO, NO_MEMORY, AUTH (a link).
     *
     * @param folder of checkpoints, or one of them; with valuesOnly also a model as Hugging Face publishes
     *               it, a directory or one file
     * @param name   null for the newest complete one
     */
    public Checkpoint load(
            Path folder, String name, LoadOptions options, Optimizer... optimizers) {
        Arguments.required(folder, "folder");
        Arguments.required(options, "options");
        Arguments.all(optimizers, "optimizers");
        requireOpen();
        try {
            return new Checkpoint(states.write("a load",
                    () -> call(handle -> Abi.meron_checkpoint_load(handle,
                            folder.toString(), name, options.lenient ? 1 : 0,
                            options.valuesOnly ? 1 : 0, options.rank0Only ? 1 : 0,
                            handles("optimizers", optimizers), options.mapping, options.claimed,
                            options.perNode ? 1 : 0, handles("units", options.units)))));
        } finally {
            Reference.reachabilityFence(optimizers);
        }
    }

    /**
     * Writes the values of all units as Hugging Face publishes models: model.safetensors, or several files
     * and an index, in a folder that all ranks see. Collective over the world; each rank writes its own
     * part of each tensor in place, so nothing is gathered. Other files of the folder are left alone.
     * Writable views of states end. Blocks on the drive and on all ranks. Throws ARGUMENT, DUPLICATE (a
     * model is there), STATE as save, NO_SPACE, IO.
     */
    public void export(Path folder, ExportOptions options) {
        Arguments.required(folder, "folder");
        Arguments.required(options, "options");
        requireOpen();
        final checkpoint_tensors table = CheckpointTensor.table(options.tensors);
        try {
            states.read("an export", () -> {
                call(handle -> Abi.meron_checkpoint_export(handle, folder.toString(),
                        options.dtype == null ? 0 : options.dtype.code(),
                        options.dtype == null ? 1 : 0, options.overwrite ? 1 : 0,
                        options.maxFileBytes, options.mapping, table));
                return null;
            });
        } finally {
            table.delete();
            Reference.reachabilityFence(options);
        }
    }

    /** Advances every operation that can advance, without waiting. Errors as Operation.await. */
    public void progress() {
        call(handle -> Abi.meron_context_progress(handle));
        lifetime.sweep();
    }

    /** Counters since the context was opened, and the memory in use now. */
    public Stats stats() {
        return new Stats(call(handle -> Abi.meron_context_stats(handle)));
    }

    /**
     * The plan's predictions for this rank and its current units: the counters of stats() grow by exactly
     * these bytes per step of that workload.
     */
    public Prediction predict(int microBatches, int gathersPerMicroBatch) {
        return new Prediction(call(handle -> Abi.meron_context_predict(
                handle, worldSize, microBatches, gathersPerMicroBatch, 0,
                Plan.ADAMW_STATES)));
    }

    @Override
    public String toString() {
        return "Context[rank " + rank + " of " + worldSize + ", "
                + (closed() ? "closed" : transport) + "]";
    }

    /**
     * The exact global 2-norm of the units' reduced gradients, which are scaled to at most maxNorm; 0 only
     * measures. For an optimizer of the trainer's own: norm and gradients have the bits with which an
     * optimizer of Meron's with maxNorm works. Collective over the units' group; blocks until every rank
     * has called it, at most the deadline. Throws NONFINITE on all ranks if a gradient is NaN or infinite,
     * with its param, element and rank: no gradient was changed. STATE for a unit that is not reduced,
     * ARGUMENT, DUPLICATE, -3xx.
     */
    public double clipGradients(double maxNorm, Unit... units) {
        requireOpen();
        try {
            return Abi.meron_gradient_clip(handles("units", units), maxNorm);
        } finally {
            Reference.reachabilityFence(this);
            Reference.reachabilityFence(units);
        }
    }

    private boolean reductionsEnded(long timeout, Unit... units) {
        requireOpen();
        try {
            return Abi.meron_reduce_wait(handles("units", units), timeout) == Abi.MERON_OK;
        } finally {
            Reference.reachabilityFence(this);
            Reference.reachabilityFence(units);
        }
    }

    /** True if the host can read the device's memory, or if there is no device. */
    boolean reachable() {
        return device == null || !device.startsWith("cuda");
    }

    boolean hasDevice() {
        return device != null;
    }

    Lifetime lifetime() {
        return lifetime;
    }

    States states() {
        return states;
    }

    @Override
    void requireOpen() {
        if (closed()) throw wasClosed();
    }

    @Override
    MeronException stale() {
        return wasClosed();
    }

    static MeronException wasClosed() {
        return new MeronException(
                Status.CLOSED, "the context was closed: open another one with Context.open");
    }
}

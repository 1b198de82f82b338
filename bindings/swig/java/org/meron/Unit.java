// SPDX-License-Identifier: Apache-2.0
package org.meron;

import java.nio.Buffer;
import java.nio.FloatBuffer;
import java.util.Map;
import java.util.function.Consumer;
import org.meron.abi.Abi;
import org.meron.abi.meron_source_list;
import org.meron.abi.meron_unit_info;

/** Params that are gathered and reduced together. Made by Context.unit. */
public final class Unit extends UnitMethods {
    /** State of a unit on this rank. */
    public enum State {
        /** This rank holds only its shard. */
        PARTITIONED,
        /** A gather is pending. */
        GATHERING,
        /** Leased at least once. */
        AVAILABLE,
        /** Being written. */
        UPDATING
    }

    /** Encoding of numbers that are sent between replicas; docs/plan.md has the details. */
    public enum Codec {
        /** Not encoded. */
        NONE,
        /** The upper half of an f32. */
        BF16,
        /** 8 bits and a scale per block. */
        INT8,
        /** 4 bits and a scale per block. */
        INT4
    }

    private final Context context;
    private final Param[] params;
    private volatile Loan gradients = new Loan();
    private volatile Loan reduced = new Loan();

    Unit(Context context, long handle, Param[] params) {
        super(new Release(handle, Abi::meron_unit_release));
        this.context = context;
        this.params = params.clone();
        for (Param param : params) param.unit = this;
    }

    @Override
    Context context() {
        return context;
    }

    /** The params that it is made of. */
    public Param[] params() {
        return params.clone();
    }

    /** The flats that its params are in, in the order of their first params. Never blocks. */
    public Flat[] flats() {
        final Flat[] flats = new Flat[Math.toIntExact(info(meron_unit_info::getFlats))];
        for (int i = 0; i < flats.length; ++i) flats[i] = new Flat(this, i);
        return flats;
    }

    /** Begins a gather and waits until the tensors are full: read-only views, not copied. */
    public Gather gather() {
        return begin(GatherMode.VIEW).full();
    }

    /** Gathers a private, writable copy, and waits. */
    public Gather gatherCopy() {
        return begin(GatherMode.COPY).full();
    }

    /**
     * Gathers into direct buffers, and waits. Padding of a flat gets values without a meaning. Throws
     * ARGUMENT for a buffer of another size, DUPLICATE for a param that is named alone and by its flat.
     *
     * @param destinations per param or flat that is wanted a buffer of exactly its size
     */
    public Gather gatherInto(Map<? extends Gatherable, ? extends Buffer> destinations) {
        requireOpen();
        return Gather.begin(
                context, GatherMode.INTO, Tier.HOST, destinations, this).full();
    }

    /**
     * Begins a gather without waiting. Collective over the unit's group; the mode may differ between
     * ranks. Throws STATE when the unit is being updated here, NO_MEMORY (a copy), -3xx.
     */
    public Gather begin(GatherMode mode) {
        requireOpen();
        return Gather.begin(context, mode, Tier.DEVICE, null, this);
    }

    /** Begins a gather of views that are in `tier`, without waiting. Errors as the other one. */
    public Gather begin(Tier tier) {
        requireOpen();
        return Gather.begin(context, GatherMode.VIEW, tier, null, this);
    }

    /**
     * Begins an update and waits until every rank has released the present values. Collective; close
     * (or publish) of every rank's update publishes the next version. Throws STATE when the unit is
     * gathered here.
     */
    public Update update() {
        requireOpen();
        return new Update(context, this);
    }

    /**
     * Updates this unit's values: begins and waits, runs the body, and publishes what it wrote. If
     * the body throws, nothing written in part is published: see {@link Update#giveUp}.
     */
    public void update(Consumer<Update> body) {
        Update.run(update(), body);
    }

    /** Begins the reduction of what Param.gradient was filled with, as a mean at the boundary. */
    public Future reduce() {
        return reduce(new ReduceOptions());
    }

    /**
     * Begins the reduction of the gradients of one micro-batch. Collective over the unit's group.
     * Throws STATE, -3xx.
     */
    public Future reduce(ReduceOptions options) {
        return reduce((meron_source_list) null, options);
    }

    /**
     * The same for gradients in the trainer's own memory, which are read during the call; params
     * without one count as zero. Blocks on peers that still read the last ones.
     *
     * <p>Gradients on the context's device are read until the reduction has ended: the caller keeps them,
     * and changes nothing of them, until the future, or Context.awaitReductions, says so.
     *
     * @param gradients per param its whole gradient: float[], a direct FloatBuffer, a View, or a
     *     DeviceArray
     */
    public Future reduce(Map<Param, ?> gradients, ReduceOptions options) {
        final meron_source_list sources = new meron_source_list();
        final Buffer[] kept = new Buffer[gradients.size()];
        int next = 0;
        try {
            for (Map.Entry<Param, ?> entry : gradients.entrySet()) {
                final Param param = entry.getKey();
                final Object values = entry.getValue();
                if (values instanceof DeviceArray) {
                    final DeviceArray at = (DeviceArray) values;
                    sources.add_at(param.handle(), at.address, at.count, at.dtype.code());
                } else if (values instanceof View) {
                    final View at = (View) values;
                    sources.add_at(param.handle(), at.address(), at.count(), at.dtype().code());
                } else {
                    kept[next] = floats(param, values);
                    sources.add(param.handle(), kept[next++], Dtype.F32.code());
                }
            }
            return reduce(sources, options);
        } finally {
            sources.delete();
            java.lang.ref.Reference.reachabilityFence(kept);
            java.lang.ref.Reference.reachabilityFence(gradients);
        }
    }

    /**
     * Begins the end of an accumulation whose micro-batches were all reduced with boundary false: the
     * result has the same bits as if the last one had been the boundary. A rank without a gradient
     * takes part with zeros. Collective. Throws STATE (a gradient was written and not reduced, or
     * reduced already and not used), ARGUMENT for options that are not of a boundary.
     */
    public Future reduceFinish(ReduceOptions options) {
        requireOpen();
        final long future = call(options::reduceFinishBegin);
        endReduced();
        return new Future(context, future, null);
    }

    /**
     * Throws the reduced gradient away, with the codec's feedback; or the accumulation, before its
     * boundary, as all ranks then must. After a step of your own optimizer, call {@code consume} instead.
     */
    public void discard() {
        requireOpen();
        call(handle -> Abi.meron_reduce_discard(handle));
        endReduced();
    }

    /**
     * Releases the memory and the names of the unit and its params, whose handles become stale.
     * Collective over their group; no rank creates units or groups meanwhile. Blocks until every rank has
     * called it and no rank uses the unit, at most the deadline. Throws if the unit is in use on this
     * rank, or belongs to a schedule or an optimizer.
     */
    public void destroy() {
        requireOpen();
        call(handle -> Abi.meron_unit_destroy(handle));
        final Loan last = gradients;
        gradients = new Loan();
        last.end("the unit was destroyed");
        endReduced();
    }

    /** The version of the values; 0 until the first update. */
    public long version() {
        return info(meron_unit_info::getVersion);
    }

    /** State of the unit on this rank. */
    public State state() {
        return State.values()[info(meron_unit_info::getState)];
    }

    /** Number of gathers that hold it on this rank. */
    public int leases() {
        return info(meron_unit_info::getLeases);
    }

    /** True if a reduced gradient waits for a step. */
    public boolean isReduced() {
        return info(meron_unit_info::getReduced) != 0;
    }

    /**
     * How values travel between replicas: by the plan's codec, or as bf16 where its error was above the
     * plan's limit.
     */
    public Codec paramCodec() {
        return Codec.values()[info(meron_unit_info::getParam_codec)];
    }

    /** The same for gradients. */
    public Codec gradientCodec() {
        return Codec.values()[info(meron_unit_info::getGradient_codec)];
    }

    /**
     * Relative error of this rank's last encoding of values: |x - decoded x| / |x| in the 2-norm. 0
     * before the first one, and without a codec; NaN or infinite if values were.
     */
    public double paramError() {
        return info(meron_unit_info::getParam_error);
    }

    /** The same of the block that lost most. */
    public double paramWorstBlock() {
        return info(meron_unit_info::getParam_worst_block);
    }

    /** Relative error of this rank's last encoding of gradients, as paramError. */
    public double gradientError() {
        return info(meron_unit_info::getGradient_error);
    }

    /** The same of the block that lost most. */
    public double gradientWorstBlock() {
        return info(meron_unit_info::getGradient_worst_block);
    }

    Loan gradientLoan() {
        return gradients;
    }

    Loan reducedLoan() {
        return reduced;
    }

    void endReduced() {
        final Loan last = reduced;
        reduced = new Loan();
        last.end("the reduced gradient was used: this view of it is over");
    }

    private Future reduce(meron_source_list sources, ReduceOptions options) {
        requireOpen();
        final long future = call(handle -> options.reduceBegin(handle, sources));
        final Loan last = gradients;
        gradients = new Loan();
        last.end("the gradient is being reduced: take a new view for the next one");
        endReduced();
        return new Future(context, future, null);
    }

    private <T> T info(java.util.function.Function<meron_unit_info, T> field) {
        requireOpen();
        final meron_unit_info info = call(handle -> Abi.meron_unit_get_info(handle));
        try {
            return field.apply(info);
        } finally {
            info.delete();
        }
    }

    private static FloatBuffer floats(Param param, Object values) {
        if (values instanceof float[]) return Group.direct((float[]) values);
        if (values instanceof FloatBuffer) return (FloatBuffer) values;
        throw new MeronException(Status.ARGUMENT, "the gradient of " + param.name()
                + " must be a float[], a direct FloatBuffer, a View or a DeviceArray, not "
                + (values == null ? "null" : values.getClass().getName()));
    }
}

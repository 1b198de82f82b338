// SPDX-License-Identifier: Apache-2.0
package org.meron;

import java.lang.ref.Reference;
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
        return gatherBegin().full();
    }

    /** Gathers a private, writable copy, and waits. */
    public Gather gatherCopy() {
        return gatherBegin(GatherMode.COPY).full();
    }

    /**
     * Gathers into direct buffers, and waits. Padding of a flat gets values without a meaning. Throws
     * ARGUMENT for a buffer of another size, DUPLICATE for a param that is named alone and by its flat.
     *
     * @param destinations per param or flat that is wanted a buffer of exactly its size
     */
    public Gather gatherInto(Map<? extends Gatherable, ? extends Buffer> destinations) {
        Arguments.required(destinations, "destinations");
        requireOpen();
        return Gather.begin(
                context, GatherMode.INTO, Tier.HOST, destinations, this).full();
    }

    /** Begins a gather of read-only views, without waiting. Errors as the next one. */
    public Gather gatherBegin() {
        return gatherBegin(GatherMode.VIEW);
    }

    /**
     * Begins a gather without waiting. Collective over the unit's group; the mode may differ between
     * ranks. Throws STATE when the unit is being updated here, NO_MEMORY (a copy), -3xx.
     */
    public Gather gatherBegin(GatherMode mode) {
        requireOpen();
        return Gather.begin(context, mode, Tier.DEVICE, null, this);
    }

    /** Begins a gather of views that are in `tier`, without waiting. Errors as the other one. */
    public Gather gatherBegin(Tier tier) {
        requireOpen();
        return Gather.begin(context, GatherMode.VIEW, tier, null, this);
    }

    /**
     * Begins an update and waits until every rank has released the present values. Collective: every
     * rank publishes the next version. Throws STATE when the unit is gathered here.
     */
    public Update update() {
        requireOpen();
        return new Update(context, this);
    }

    /**
     * Updates this unit's values: begins and waits, runs the body, and publishes what it wrote. If
     * the body throws, nothing is published: see {@link Update#close}.
     */
    public void update(Consumer<Update> body) {
        Arguments.required(body, "body");
        Update.run(update(), body);
    }

    /** Reduces what Param.gradient was filled with, as a mean at the boundary, and waits. */
    public void reduce() {
        reduce(new ReduceOptions());
    }

    /** Reduces the gradients of one micro-batch, and waits. Else as reduceBegin. */
    public void reduce(ReduceOptions options) {
        reduceBegin(options).finish();
    }

    /** Reduces gradients in the trainer's own memory, and waits. Else as reduceBegin. */
    public void reduce(Map<Param, ?> gradients, ReduceOptions options) {
        reduceBegin(gradients, options).finish();
    }

    /** Begins the reduction of what Param.gradient was filled with, as a mean at the boundary. */
    public Operation reduceBegin() {
        return reduceBegin(new ReduceOptions());
    }

    /**
     * Begins the reduction of the gradients of one micro-batch. Collective over the unit's group. Views of
     * Param.gradient end. Context.awaitReductions waits for several.
     *
     * @throws MeronException STATE, -3xx.
     */
    public Operation reduceBegin(ReduceOptions options) {
        return reduceBegin((meron_source_list) null, Arguments.required(options, "options"));
    }

    /**
     * The same for gradients in the trainer's own memory, which are read during the call; params
     * without one count as zero. Blocks on peers that still read the last ones.
     *
     * <p>Gradients on the context's device are read until the reduction has ended: do not change or free them
     * before the operation, or Context.awaitReductions, says so.
     *
     * @param gradients the whole gradient of each param: float[], a direct FloatBuffer in native order, a
     *     View, or a DeviceArray
     */
    public Operation reduceBegin(Map<Param, ?> gradients, ReduceOptions options) {
        Arguments.required(gradients, "gradients");
        Arguments.required(options, "options");
        final meron_source_list sources = new meron_source_list();
        try (Staging staging = new Staging()) {
            for (Map.Entry<Param, ?> entry : gradients.entrySet()) {
                add(sources, Arguments.required(entry.getKey(), "a key of gradients"),
                        entry.getValue(), staging);
            }
            return reduceBegin(sources, options);
        } finally {
            sources.delete();
            Reference.reachabilityFence(gradients);
        }
    }

    private static void add(
            meron_source_list sources, Param param, Object values, Staging staging) {
        if (values instanceof DeviceArray) {
            final DeviceArray at = (DeviceArray) values;
            sources.add_at(param.handle(), at.address, at.count, at.dtype.code());
        } else if (values instanceof View) {
            final View at = (View) values;
            sources.add_at(param.handle(), at.address(), at.count(), at.dtype().code());
        } else {
            sources.add(param.handle(), floats(param, values, staging), Dtype.F32.code());
        }
    }

    /** Ends an accumulation, and waits. Else as reduceFinishBegin. */
    public void reduceFinish(ReduceOptions options) {
        reduceFinishBegin(options).finish();
    }

    /**
     * Begins the end of an accumulation whose micro-batches were all reduced with boundary false: the
     * result has the same bits as if the last one had been the boundary. A rank without a gradient
     * takes part with zeros. Collective.
     *
     * @throws MeronException STATE (a gradient was written and not reduced, or reduced already and not
     *     used), ARGUMENT for options that are not of a boundary.
     */
    public Operation reduceFinishBegin(ReduceOptions options) {
        Arguments.required(options, "options");
        requireOpen();
        final long future = call(options::reduceFinishBegin);
        endReduced();
        return new Operation(context, future, null);
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

    private Operation reduceBegin(meron_source_list sources, ReduceOptions options) {
        requireOpen();
        final long future = call(handle -> options.reduceBegin(handle, sources));
        final Loan last = gradients;
        gradients = new Loan();
        last.end("the gradient is being reduced: take a new view for the next one");
        endReduced();
        return new Operation(context, future, null);
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

    private static FloatBuffer floats(Param param, Object values, Staging staging) {
        if (values instanceof float[]) return staging.copy((float[]) values);
        if (values instanceof FloatBuffer) {
            return Buffers.elements(
                    (FloatBuffer) values, Dtype.F32, "the gradient of " + param.name());
        }
        throw new MeronException(Status.ARGUMENT, "the gradient of " + param.name()
                + " must be a float[], a direct FloatBuffer, a View or a DeviceArray, not "
                + (values == null ? "null" : values.getClass().getName()));
    }
}

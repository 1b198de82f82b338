// SPDX-License-Identifier: Apache-2.0
package org.meron;

import java.lang.ref.Reference;
import java.nio.Buffer;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.meron.abi.Abi;
import org.meron.abi.meron_destination_list;
import org.meron.abi.meron_flat_destination_list;

/**
 * A gather of units, which are leased from its end until close. Views and their buffers keep a gather
 * alive that is not closed, and with it the lease: close it, in a try statement, before the next step.
 */
public final class Gather extends Handle implements Pending {
    private static final String OVER =
            "the gather was closed: read its tensors before, or gather again";

    /** Destinations must stay as long as the library may write them. */
    private static final class Ending extends Release {
        private final Map<? extends Gatherable, ? extends Buffer> destinations;
        private final Loan loan;

        Ending(long handle, Map<? extends Gatherable, ? extends Buffer> destinations, Loan loan) {
            super(handle, Abi::meron_future_release);
            this.destinations = destinations;
            this.loan = loan;
        }

        @Override
        void end(long last) {
            loan.end(OVER);
            super.end(last);
            Reference.reachabilityFence(destinations);
        }
    }

    private final Context context;
    private final boolean onHost; // whatever the device
    private final Loan loan;
    private volatile boolean full;

    private Gather(Context context, Loan loan, Ending ending, boolean onHost) {
        super(ending);
        this.loan = loan;
        this.context = context;
        this.onHost = onHost;
    }

    static Gather begin(
            Context context, GatherMode mode, Tier tier, Map<? extends Gatherable, ? extends Buffer> into,
            Unit... units) {
        Arguments.required(mode, "mode");
        Arguments.required(tier, "tier");
        if (mode == GatherMode.INTO && into == null) {
            throw new MeronException(
                    Status.ARGUMENT, "a gather into memory needs that memory: use gatherInto");
        }
        final meron_destination_list params = into == null ? null : new meron_destination_list();
        final meron_flat_destination_list flats =
                into == null ? null : new meron_flat_destination_list();
        try {
            if (into != null) add(into, params, flats);
            final long handle =
                    Abi.meron_gather_begin(
                            handles("units", units), mode.code(), params, tier.code(), 0, flats);
            final Loan loan = new Loan();
            return new Gather(context, loan, new Ending(handle, into, loan),
                    mode != GatherMode.VIEW || tier == Tier.HOST);
        } finally {
            if (params != null) params.delete();
            if (flats != null) flats.delete();
            Reference.reachabilityFence(units);
        }
    }

    private static void add(
            Map<? extends Gatherable, ? extends Buffer> into, meron_destination_list params,
            meron_flat_destination_list flats) {
        for (Map.Entry<? extends Gatherable, ? extends Buffer> entry : into.entrySet()) {
            final Gatherable wanted = Arguments.required(entry.getKey(), "a key of destinations");
            final Buffer memory = entry.getValue();
            final String name = "the destination of " + wanted;
            Buffers.elements(memory, wanted.dtype(), name);
            Buffers.writable(memory, name);
            if (wanted instanceof Flat) {
                final Flat flat = (Flat) wanted;
                flats.add(flat.unit.handle(), flat.index(), memory);
            } else {
                params.add(((Param) wanted).handle(), memory);
            }
        }
    }

    /** Waits until the tensors are full. Errors as Operation.await. */
    @Override
    public void await() {
        look(Abi.MERON_TIMEOUT_DEFAULT);
    }

    /** Waits at most `timeout`; false when that passed first. */
    @Override
    public boolean await(Duration timeout) {
        return look(Operation.nanoseconds(timeout));
    }

    /**
     * Makes a stream wait until the tensors are full on the device: what is asked of it from now on sees
     * them. Waits for peers, not for the device; on the host it is await().
     *
     * @param stream the address of a stream of the context's device (a cudaStream_t); 0: its default one
     * @throws MeronException as await(); ARGUMENT when the context has no device, or the stream is
     *     another one's; STATE when the stream is being captured into a graph; DEVICE.
     */
    public void waitStream(long stream) {
        join(stream, Abi.MERON_TIMEOUT_DEFAULT);
    }

    /** The same for at most `timeout` of waiting for peers; false when that passed first. */
    public boolean waitStream(long stream, Duration timeout) {
        return join(stream, Operation.nanoseconds(timeout));
    }

    /** True if the tensors are full; never blocks on peers. Throws the gather's error. */
    @Override
    public boolean done() {
        return look(0);
    }

    /**
     * The whole tensor of a param: read-only for a view, because other ranks read the same memory.
     * On a CUDA device it has an address, and no buffers; memory of the emulated one is the host's, and
     * waited for here. Throws STATE when it is not full yet, ARGUMENT for a param of another gather.
     */
    public View view(Param param) {
        Arguments.required(param, "param");
        context.requireOpen();
        try {
            return settled(call(handle -> new View(context, this, loan,
                    Abi.meron_gather_view(handle, param.handle()), context.reachable() || onHost)));
        } finally {
            Reference.reachabilityFence(param);
        }
    }

    /**
     * The same as a DLPack tensor for native libraries of this process, read-only, with a lease of its
     * own until it is closed. Errors as view; UNSUPPORTED for INTO, for that memory is
     * the caller's, and for memory of a CUDA device.
     */
    public DlpackTensor dlpack(Param param) {
        Arguments.required(param, "param");
        context.requireOpen();
        try {
            return settled(call(handle -> DlpackTensor.take(
                    Abi.meron_gather_dlpack(handle, param.handle()))));
        } finally {
            Reference.reachabilityFence(param);
        }
    }

    /** Gives the leases back; views of the gather throw from now on. Never blocks. */
    @Override
    public void close() {
        loan.end(OVER);
        super.close();
    }

    /**
     * As close(), where work that was asked of `stream` so far still uses the views: their memory on the
     * device goes back when that is done. Never blocks. Throws as waitStream; then it is not closed.
     *
     * @param stream as in waitStream
     */
    public void releaseOnStream(long stream) {
        call(handle -> Abi.meron_gather_release_on_stream(handle, stream));
        loan.end(OVER);
        take();
        super.close();
    }

    /**
     * A future of java.util.concurrent that completes with this gather once the tensors are full, or with its
     * MeronException. A daemon thread waits for it. Cancelling the future does not stop the gather: close it.
     * Returns at once.
     */
    public CompletableFuture<Gather> toCompletableFuture() {
        context.requireOpen();
        return Waiters.begin(() -> {
            await();
            return this;
        });
    }

    /** Waits; releases the leases if that fails, because the caller does not have this gather yet. */
    Gather full() {
        try {
            await();
            return this;
        } catch (RuntimeException | Error error) {
            close();
            throw error;
        }
    }

    private boolean join(long stream, long timeout) {
        context.requireOpen();
        return call(handle -> Abi.meron_gather_wait_stream(handle, stream, timeout)) == Abi.MERON_OK;
    }

    /** Returns `shown`. If the device's memory is the host's, waits for the gather first. */
    private <T> T settled(T shown) {
        if (!full && context.hasDevice() && context.reachable()) await();
        return shown;
    }

    @Override
    void requireOpen() {
        context.requireOpen();
    }

    private boolean look(long timeout) {
        context.requireOpen();
        if (!full || closed()) {
            full = call(handle -> Abi.meron_future_wait(handle, timeout)) == Abi.MERON_OK;
        }
        return full;
    }
}

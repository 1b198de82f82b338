// SPDX-License-Identifier: Apache-2.0
package org.meron;

import java.nio.Buffer;
import java.time.Duration;
import java.util.Map;
import org.meron.abi.Abi;
import org.meron.abi.meron_destination_list;
import org.meron.abi.meron_flat_destination_list;

/**
 * A gather of units, which are leased from its end until close. Views and their buffers keep a gather
 * alive that is not closed, and with it the lease: close it, in a try statement, before the next step.
 */
public final class Gather extends Handle implements Pending {
    /** Destinations must stay as long as the library may write them. */
    private static final class Ending extends Release {
        private final Map<? extends Gatherable, ? extends Buffer> destinations;

        Ending(long handle, Map<? extends Gatherable, ? extends Buffer> destinations) {
            super(handle, Abi::meron_future_release);
            this.destinations = destinations;
        }

        @Override
        void end(long last) {
            super.end(last);
            java.lang.ref.Reference.reachabilityFence(destinations);
        }
    }

    private final Context context;
    private final boolean onHost; // whatever the device
    private final Loan loan = new Loan();
    private volatile boolean full;

    private Gather(Context context, Ending ending, boolean onHost) {
        super(ending);
        this.context = context;
        this.onHost = onHost;
    }

    static Gather begin(
            Context context, GatherMode mode, Tier tier, Map<? extends Gatherable, ? extends Buffer> into,
            Unit... units) {
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
                    Abi.meron_gather_begin(handles(units), mode.code(), params, tier.code(), 0, flats);
            return new Gather(context, new Ending(handle, into),
                    mode != GatherMode.VIEW || tier == Tier.HOST);
        } finally {
            if (params != null) params.delete();
            if (flats != null) flats.delete();
            java.lang.ref.Reference.reachabilityFence(units);
        }
    }

    private static void add(
            Map<? extends Gatherable, ? extends Buffer> into, meron_destination_list params,
            meron_flat_destination_list flats) {
        for (Map.Entry<? extends Gatherable, ? extends Buffer> entry : into.entrySet()) {
            if (entry.getKey() instanceof Flat) {
                final Flat flat = (Flat) entry.getKey();
                flats.add(flat.unit.handle(), flat.index(), entry.getValue());
            } else {
                params.add(((Param) entry.getKey()).handle(), entry.getValue());
            }
        }
    }

    /** Waits until the tensors are full. Errors as Future.await. */
    @Override
    public void await() {
        look(Abi.MERON_TIMEOUT_DEFAULT);
    }

    /** Waits at most `timeout`; false when that passed first. */
    @Override
    public boolean await(Duration timeout) {
        return look(Future.nanoseconds(timeout));
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
        return join(stream, Future.nanoseconds(timeout));
    }

    /** True if the tensors are full; never blocks on peers. Throws the gather's error. */
    public boolean ready() {
        return look(0);
    }

    /**
     * The whole tensor of a param: read-only for a view, because other ranks read the same memory.
     * On a CUDA device it has an address, and no buffers; memory of the emulated one is the host's, and
     * waited for here. Throws STATE when it is not full yet, ARGUMENT for a param of another gather.
     */
    public View view(Param param) {
        context.requireOpen();
        try {
            return settled(call(handle -> new View(context, this, loan,
                    Abi.meron_gather_view(handle, param.handle()), context.reachable() || onHost)));
        } finally {
            java.lang.ref.Reference.reachabilityFence(param);
        }
    }

    /**
     * The same as a DLPack tensor for native libraries of this process, read-only, with a lease of its
     * own until it is closed. Errors as view; UNSUPPORTED for INTO, for that memory is
     * the caller's, and for memory of a CUDA device.
     */
    public DlpackTensor dlpack(Param param) {
        context.requireOpen();
        try {
            return settled(call(handle -> DlpackTensor.take(
                    Abi.meron_gather_dlpack(handle, param.handle()))));
        } finally {
            java.lang.ref.Reference.reachabilityFence(param);
        }
    }

    /** Gives the leases back; views of the gather throw from now on. Never blocks. */
    @Override
    public void close() {
        loan.end("the gather was closed: read its tensors before, or gather again");
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
        loan.end("the gather was closed: read its tensors before, or gather again");
        take();
        super.close();
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

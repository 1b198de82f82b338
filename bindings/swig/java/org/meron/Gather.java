// SPDX-License-Identifier: Apache-2.0
package org.meron;

import java.nio.Buffer;
import java.time.Duration;
import java.util.Map;
import org.meron.abi.Abi;
import org.meron.abi.meron_destination_list;

/**
 * Units on their way to full, then leased until close. Views and their buffers keep a gather that
 * nobody closes alive, and with it the lease: close it, in a try statement, before the next step.
 */
public final class Gather extends Handle {
    /** Destinations must stay as long as the library may write them. */
    private static final class Ending extends Release {
        private final Map<Param, ? extends Buffer> destinations;

        Ending(long handle, Map<Param, ? extends Buffer> destinations) {
            super(handle, Abi::meron_gather_release);
            this.destinations = destinations;
        }

        @Override
        void end(long last) {
            super.end(last);
            java.lang.ref.Reference.reachabilityFence(destinations);
        }
    }

    private final Context context;
    private final Loan loan = new Loan();
    private volatile boolean full;

    private Gather(Context context, Ending ending) {
        super(ending);
        this.context = context;
    }

    static Gather begin(
            Context context, GatherMode mode, Map<Param, ? extends Buffer> into, Unit... units) {
        if (mode == GatherMode.INTO && into == null) {
            throw new MeronException(
                    Status.ARGUMENT, "a gather into memory needs that memory: use gatherInto");
        }
        final meron_destination_list list = into == null ? null : new meron_destination_list();
        try {
            if (list != null) {
                for (Map.Entry<Param, ? extends Buffer> entry : into.entrySet()) {
                    list.add(entry.getKey().handle(), entry.getValue());
                }
            }
            final long handle = Abi.meron_gather_begin(handles(units), mode.code(), list);
            return new Gather(context, new Ending(handle, into));
        } finally {
            if (list != null) list.delete();
            java.lang.ref.Reference.reachabilityFence(units);
        }
    }

    /** Waits until the tensors are full. Errors as Future.await. */
    public void await() {
        look(Abi.MERON_TIMEOUT_DEFAULT);
    }

    /** Waits at most `timeout`; false when that passed first. */
    public boolean await(Duration timeout) {
        return look(Future.nanoseconds(timeout));
    }

    /** Whether the tensors are full; never blocks on peers. Throws the gather's error. */
    public boolean ready() {
        return look(0);
    }

    /**
     * The whole tensor of a param: read-only for a view, because other ranks read the same memory.
     * Throws STATE when it is not full yet, ARGUMENT for a param of another gather.
     */
    public View view(Param param) {
        context.requireOpen();
        try {
            return call(handle -> new View(
                    context, this, loan, Abi.meron_gather_view(handle, param.handle())));
        } finally {
            java.lang.ref.Reference.reachabilityFence(param);
        }
    }

    /**
     * The same as a DLPack tensor for native libraries of this process, read-only, with a lease of its
     * own until it is closed. Errors as view; UNSUPPORTED for INTO: that memory is the caller's.
     */
    public DlpackTensor dlpack(Param param) {
        context.requireOpen();
        try {
            return call(handle -> DlpackTensor.take(
                    Abi.meron_gather_dlpack(handle, param.handle())));
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

    /** Waits; gives the leases back if that fails, for nobody else has this gather yet. */
    Gather full() {
        try {
            await();
            return this;
        } catch (RuntimeException | Error error) {
            close();
            throw error;
        }
    }

    private boolean look(long timeout) {
        context.requireOpen();
        if (!full || closed()) {
            full = call(handle -> Abi.meron_gather_wait(handle, timeout)) == Abi.MERON_OK;
        }
        return full;
    }
}

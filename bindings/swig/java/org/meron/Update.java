// SPDX-License-Identifier: Apache-2.0
package org.meron;

import java.nio.Buffer;
import java.util.function.Consumer;
import org.meron.abi.Abi;

/**
 * Units opened for writing: {@code try (Update update = unit.update()) { update.write(param, values); }}.
 * Collective over the units' group. {@link #close} publishes this rank's writes as the next version, also
 * after an exception, which it cannot detect. {@code unit.update(update -> ...)} can: it publishes if the
 * body returns, and calls {@link #giveUp} if it throws. Take that form if what the body calls may throw.
 */
public final class Update extends Handle {
    private final Context context;
    private final Loan loan = new Loan();

    /** Begins and waits. If the wait fails, cancels the update, which breaks the group. */
    Update(Context context, Unit... units) {
        super(begin(units));
        this.context = context;
        try {
            call(handle -> Abi.meron_future_wait(handle, Abi.MERON_TIMEOUT_DEFAULT));
        } catch (RuntimeException | Error error) {
            super.close();
            throw error;
        }
    }

    private static Release begin(Unit... units) {
        try {
            return new Release(Abi.meron_update_begin(handles(units)), Abi::meron_future_release);
        } finally {
            java.lang.ref.Reference.reachabilityFence(units);
        }
    }

    /** Writes this rank's shard from the full tensor. Every rank passes equal values. */
    public void write(Param param, float... values) {
        write(param, Group.direct(values), Dtype.F32);
    }

    /**
     * Writes this rank's part from the whole tensor in a direct buffer, from position to limit. It is
     * converted to the param's dtype, and kept as F32 too where there is an F32 master copy. Throws
     * ARGUMENT for another number of elements or a param of no unit of the update.
     *
     * @param dtype of the buffer's elements
     */
    public void write(Param param, Buffer values, Dtype dtype) {
        context.requireOpen();
        try {
            call(handle -> Abi.meron_update_write(handle, param.handle(), values, dtype.code()));
        } finally {
            java.lang.ref.Reference.reachabilityFence(param);
        }
    }

    /** The part of a param that this rank updates, in place, writable until publish. */
    public View view(Param param) {
        context.requireOpen();
        try {
            return call(handle -> new View(
                    context, this, loan, Abi.meron_update_view(handle, param.handle())));
        } finally {
            java.lang.ref.Reference.reachabilityFence(param);
        }
    }

    /** Publishes what was written as the next version, and ends the update. */
    public void publish() {
        final long handle = take();
        if (handle == 0) throw stale();
        loan.end("the update was published: this view of it is over");
        Abi.meron_update_publish(handle);
    }

    /**
     * Ends the update without publishing what was written. If this rank has written or viewed no
     * param, its values are published unchanged; otherwise the group breaks with ABORTED on every
     * rank, in words that name this one. Does nothing after publish. Never blocks.
     */
    public void giveUp() {
        loan.end("the update was given up: this view of it is over");
        super.close();
    }

    /** Runs the body; publishes if it returns, and cancels if it throws. */
    static void run(Update update, Consumer<Update> body) {
        try {
            body.accept(update);
        } catch (Throwable thrown) {
            try {
                update.giveUp();
            } catch (RuntimeException | Error further) {
                thrown.addSuppressed(further);
            }
            throw thrown;
        }
        update.close();
    }

    /** Publishes, unless that was done. Does nothing once the context is closed. */
    @Override
    public void close() {
        final boolean open = !closed() && !context.closed();
        try {
            if (open) publish();
        } finally {
            super.close();
        }
    }
}

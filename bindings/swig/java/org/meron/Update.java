// SPDX-License-Identifier: Apache-2.0
package org.meron;

import java.lang.ref.Reference;
import java.nio.Buffer;
import java.util.function.Consumer;
import org.meron.abi.Abi;

/**
 * Units opened for writing. Collective over the units' group: every rank publishes.
 *
 * <pre>{@code
 * try (Update update = unit.update()) {
 *     update.write(param, values);
 *     update.publish();
 * }
 * }</pre>
 *
 * <p>{@link #publish} publishes what this rank wrote as the next version. {@link #close} without it cancels
 * the update, so an exception between the two publishes nothing. {@code unit.update(update -> ...)} publishes
 * when its body returns. Use it on one thread.
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
            return new Release(
                    Abi.meron_update_begin(handles("units", units)), Abi::meron_future_release);
        } finally {
            Reference.reachabilityFence(units);
        }
    }

    /**
     * Writes this rank's shard from the full tensor, which is copied. Every rank passes equal values.
     * Throws as the other one.
     */
    public void write(Param param, float... values) {
        Arguments.required(param, "param");
        Arguments.required(values, "values");
        try (Staging staging = new Staging()) {
            write(param, staging.copy(values), Dtype.F32);
        }
    }

    /**
     * Writes this rank's shard from the full tensor. It is converted to the param's dtype, and kept as F32
     * too if there is an F32 master. Every rank passes equal values.
     *
     * @param param  of a unit of the update
     * @param values a direct buffer in native order, read from position to limit during the call: one of
     *     the elements' type, or of bytes
     * @param dtype  of the buffer's elements
     * @throws MeronException ARGUMENT for another number of elements, a param of no unit of the update, a
     *     buffer of another type or order; STALE after publish and close.
     */
    public void write(Param param, Buffer values, Dtype dtype) {
        Arguments.required(param, "param");
        Buffers.elements(values, dtype, "values");
        context.requireOpen();
        try {
            call(handle -> Abi.meron_update_write(handle, param.handle(), values, dtype.code()));
        } finally {
            Reference.reachabilityFence(param);
        }
    }

    /** The shard of a param that this rank updates, in place, writable until publish or close. */
    public View view(Param param) {
        Arguments.required(param, "param");
        context.requireOpen();
        try {
            return call(handle -> new View(
                    context, this, loan, Abi.meron_update_view(handle, param.handle())));
        } finally {
            Reference.reachabilityFence(param);
        }
    }

    /** Publishes what was written as the next version, and ends the update. Throws STALE a second time. */
    public void publish() {
        context.requireOpen();
        final long handle = take();
        if (handle == 0) throw stale();
        loan.end("the update was published: this view of it is over");
        Abi.meron_update_publish(handle);
    }

    /** Runs the body; publishes if it returns, and cancels if it throws. */
    static void run(Update update, Consumer<Update> body) {
        try (update) {
            body.accept(update);
            if (!update.closed()) update.publish();
        }
    }

    /**
     * Cancels the update, unless it was published. If this rank has written or viewed no param, its values
     * are published unchanged; otherwise the group breaks with ABORTED on every rank, in words that name
     * this one. Does nothing after publish. Never blocks.
     */
    @Override
    public void close() {
        loan.end("the update was closed without publish: this view of it is over");
        super.close();
    }
}

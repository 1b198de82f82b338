// SPDX-License-Identifier: Apache-2.0
package org.meron;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import org.meron.abi.Abi;

/**
 * A pending operation that returns nothing but its end. {@code stepBegin}, {@code reduceBegin} and the
 * other methods whose names end in {@code Begin} return one; the names without {@code Begin} wait.
 * Waiting for one advances every operation of the context.
 *
 * <p>Closing it does not stop the operation, because the ranks must stay in step. The memory that the
 * operation uses is kept until it has ended. If it fails and no call has thrown its error, the error is
 * logged once: by the next call that waits, or when the context is closed. The next save throws the error
 * of a save.
 *
 * <p>Any thread may use it, and several may wait for it.
 */
public final class Operation extends Handle implements Pending {
    /** The library's side: it releases the future, and keeps the memory that the operation uses. */
    static final class Ending extends Release {
        private final Lifetime lifetime;
        private volatile Object memory;

        Ending(long future, Lifetime lifetime, Object memory) {
            super(future, Abi::meron_future_release);
            this.lifetime = lifetime;
            this.memory = memory;
            lifetime.add(this);
        }

        @Override
        void end(long last) {
            lifetime.remove(this);
            final Object used = memory;
            if (used == null) {
                super.end(last);
            } else {
                lifetime.release(last, used);
            }
        }

        /** Releases the future before its context closes; the close logs an error that no call has thrown. */
        void endWithContext() {
            final long last = take();
            if (last != 0) super.end(last);
        }
    }

    private final Context context;
    private final Ending ending;
    private volatile boolean ended;

    Operation(Context context, long handle, Object memory) {
        this(context, new Ending(handle, context.lifetime(), memory));
    }

    private Operation(Context context, Ending ending) {
        super(ending);
        this.context = context;
        this.ending = ending;
    }

    /**
     * Waits until the operation has ended, at most the context's deadline.
     *
     * @throws MeronException TIMEOUT, PEER_DEAD, PEER_CLOSED, MISMATCH, ABORTED; NONFINITE (a step);
     *     CANCELLED if this thread is interrupted or should_stop returns true: the operation continues.
     */
    @Override
    public void await() {
        look(Abi.MERON_TIMEOUT_DEFAULT);
    }

    /** Waits at most `timeout`. Returns false after the timeout; the operation continues. */
    @Override
    public boolean await(Duration timeout) {
        return look(nanoseconds(timeout));
    }

    /** True if the operation has succeeded; never blocks on peers. Throws its error. */
    @Override
    public boolean done() {
        return look(0);
    }

    /** Waits, and closes the operation also if that fails. Throws as await. */
    public void finish() {
        try {
            await();
        } finally {
            close();
        }
    }

    /**
     * A future of java.util.concurrent that completes with null, or with the MeronException of the
     * operation. A daemon thread waits for the operation and then closes it: do not close it before.
     * Cancelling the future does not stop the operation. Returns at once.
     */
    public CompletableFuture<Void> toCompletableFuture() {
        context.requireOpen();
        return Waiters.begin(() -> {
            finish();
            return null;
        });
    }

    @Override
    void requireOpen() {
        context.requireOpen();
    }

    private boolean look(long timeout) {
        if (ended && !closed()) return true;
        context.requireOpen();
        try {
            ended = call(handle -> Abi.meron_future_wait(handle, timeout)) == Abi.MERON_OK;
        } catch (MeronException error) {
            if (error.status() != Status.CANCELLED) ending.memory = null; // it has ended
            throw error;
        }
        if (ended) ending.memory = null;
        return ended;
    }

    static long nanoseconds(Duration timeout) {
        Arguments.required(timeout, "timeout");
        if (timeout.isNegative() || timeout.getSeconds() > 9_000_000_000L) {
            throw new MeronException(Status.ARGUMENT, "timeout must be 0 or more, not " + timeout);
        }
        return timeout.toNanos();
    }
}

// SPDX-License-Identifier: Apache-2.0
package org.meron;

import java.time.Duration;
import org.meron.abi.Abi;

/**
 * An operation that was begun and yields nothing but its end. Waiting for it advances every operation
 * of the context. Closing it does not stop it, because the ranks must stay in step; memory that it
 * still uses is kept until it has ended.
 */
public final class Future extends Handle implements Pending {
    private static final class Ending extends Release {
        private final Lifetime lifetime;
        volatile Object memory;

        Ending(long future, Lifetime lifetime, Object memory) {
            super(future, Abi::meron_future_release);
            this.lifetime = lifetime;
            this.memory = memory;
        }

        @Override
        void end(long last) {
            final Object used = memory;
            if (used == null) {
                super.end(last);
            } else {
                lifetime.release(last, used);
            }
        }
    }

    private final Context context;
    private final Ending ending;
    private volatile boolean ended;

    Future(Context context, long handle, Object memory) {
        this(context, new Ending(handle, context.lifetime(), memory));
    }

    private Future(Context context, Ending ending) {
        super(ending);
        this.context = context;
        this.ending = ending;
    }

    /**
     * Waits until the operation has ended. Throws TIMEOUT, PEER_DEAD, PEER_CLOSED, MISMATCH, ABORTED;
     * NONFINITE (a step); CANCELLED when this thread is interrupted or should_stop says so.
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
    public boolean done() {
        return look(0);
    }

    /** Waits, and closes the future also when that fails. */
    public void finish() {
        try {
            await();
        } finally {
            close();
        }
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
        if (timeout.isNegative() || timeout.getSeconds() > 9_000_000_000L) {
            throw new MeronException(Status.ARGUMENT, "a timeout is 0 or more, not " + timeout);
        }
        return timeout.toNanos();
    }
}

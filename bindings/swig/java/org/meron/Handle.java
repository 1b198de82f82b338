// SPDX-License-Identifier: Apache-2.0
package org.meron;

import java.lang.ref.Cleaner;
import java.lang.ref.Reference;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.LongConsumer;
import java.util.function.LongFunction;
import org.meron.abi.Abi;

/**
 * A handle of the library. {@link #close} releases it; doing so twice is fine. An object that is
 * dropped without it is released by a Cleaner, which never starts a collective: handles are values
 * that the library checks, so any order on any thread will do.
 */
abstract class Handle implements AutoCloseable {
    static final Cleaner CLEANER = Cleaner.create();

    /** Releases the handle. Must not refer to the object that owns it. */
    static class Release implements Runnable {
        private final AtomicLong handle;
        private final LongConsumer function;

        Release(long handle, LongConsumer function) {
            this.handle = new AtomicLong(handle);
            this.function = function;
        }

        /** The handle, or 0 after it was taken. */
        final long get() {
            return handle.get();
        }

        /** The handle, for the one caller that is to end it; 0 for all others. */
        final long take() {
            return handle.getAndSet(0);
        }

        @Override
        public void run() {
            final long last = take();
            if (last != 0) end(last);
        }

        void end(long last) {
            try {
                function.accept(last);
            } catch (MeronException gone) {
                // Stale: the context was closed before, and everything with it.
                if (gone.status() != Status.STALE && gone.status() != Status.HANDLE) throw gone;
            }
        }
    }

    private final Release release;
    private final Cleaner.Cleanable cleanable;

    Handle(Release release) {
        this.release = release;
        this.cleanable = CLEANER.register(this, release);
    }

    /** `memory`: if nothing refers to it any more, the Cleaner releases the handle. */
    Handle(Release release, Object memory) {
        this.release = release;
        this.cleanable = CLEANER.register(memory, release);
    }

    /** Releases the handle. Never blocks on peers. */
    @Override
    public void close() {
        cleanable.clean();
    }

    /** Calls with the handle; keeps this object, and so the handle, alive meanwhile. */
    final <T> T call(LongFunction<T> function) {
        try {
            return function.apply(handle());
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /** The handle; whoever takes it keeps this object alive. Throws STALE after close. */
    final long handle() {
        final long handle = release.get();
        if (handle == 0) throw stale();
        return handle;
    }

    /** Throws CLOSED when the context that this was made from was closed. */
    void requireOpen() {}

    final boolean closed() {
        return release.get() == 0;
    }

    final long take() {
        return release.take();
    }

    /** The error of a call after close. */
    MeronException stale() {
        return new MeronException(Status.STALE,
                "this " + getClass().getSimpleName() + " was closed: make another one");
    }

    static int awaitAny(long timeout, Pending... operations) {
        Arguments.all(operations, "operations");
        final long[] handles = new long[operations.length];
        for (int i = 0; i < handles.length; ++i) {
            if (!(operations[i] instanceof Handle)) {
                throw new MeronException(Status.ARGUMENT,
                        "operations[" + i + "] is neither an Operation nor a Gather");
            }
            final Handle pending = (Handle) operations[i];
            pending.requireOpen();
            handles[i] = pending.handle();
        }
        try {
            final int found = (int) Abi.meron_future_wait_any(handles, timeout);
            return found == handles.length ? -1 : found;
        } finally {
            Reference.reachabilityFence(operations);
        }
    }

    /** The handles of some objects; the caller keeps these alive. `name`: the parameter. */
    static long[] handles(String name, Handle... objects) {
        Arguments.all(objects, name);
        final long[] out = new long[objects.length];
        for (int i = 0; i < out.length; ++i) out[i] = objects[i].handle();
        return out;
    }
}

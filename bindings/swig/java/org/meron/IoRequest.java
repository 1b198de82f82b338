// SPDX-License-Identifier: Apache-2.0
package org.meron;

import java.nio.Buffer;
import java.time.Duration;
import org.meron.abi.Abi;

/**
 * A read or write that was begun. Closing it does not stop it: its memory is kept until it has ended,
 * and Io.await or Io.close tells how it did.
 */
public final class IoRequest extends Handle {
    private static final class Ending extends Release {
        private final IoLifetime lifetime;
        volatile Buffer memory;

        Ending(long request, IoLifetime lifetime, Buffer memory) {
            super(request, Abi::meron_future_release);
            this.lifetime = lifetime;
            this.memory = memory;
        }

        @Override
        void end(long last) {
            final Buffer used = memory;
            if (used == null) {
                super.end(last);
            } else {
                lifetime.release(last, used);
            }
        }
    }

    private final Io io; // which must not be closed by a Cleaner before
    private final Ending ending;

    IoRequest(Io io, IoLifetime lifetime, long handle, Buffer memory) {
        this(io, new Ending(handle, lifetime, memory));
    }

    private IoRequest(Io io, Ending ending) {
        super(ending);
        this.io = io;
        this.ending = ending;
    }

    /**
     * Waits until it has ended, as long as transfers progress. Throws IO, NO_SPACE; TIMEOUT if no
     * transfer progresses (it continues); CLOSED if the Io was closed before it ended.
     */
    public void await() {
        look(Abi.MERON_TIMEOUT_DEFAULT);
    }

    /** Waits at most `timeout`. Returns false after the timeout; it continues. */
    public boolean await(Duration timeout) {
        return look(Operation.nanoseconds(timeout));
    }

    /** Whether it has ended well; never blocks. Throws its error. */
    public boolean done() {
        return look(0);
    }

    private boolean look(long timeout) {
        try {
            if (call(handle -> Abi.meron_future_wait(handle, timeout)) != Abi.MERON_OK) {
                return false;
            }
        } catch (MeronException error) {
            if (!IoLifetime.mayUseMemory(error)) ending.memory = null;
            throw error;
        } finally {
            java.lang.ref.Reference.reachabilityFence(io);
        }
        ending.memory = null;
        return true;
    }
}

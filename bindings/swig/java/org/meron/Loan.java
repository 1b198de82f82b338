// SPDX-License-Identifier: Apache-2.0
package org.meron;

import java.nio.ByteBuffer;

/** Knows of some views whether their memory still is what they show. */
final class Loan {
    private final Object writes;
    private volatile String ended;
    private Scope scope; // of buffers, if there are any; guarded by this

    Loan() {
        this(null);
    }

    /** `writes`: its monitor is held by each write through a view, or null. */
    Loan(Object writes) {
        this.writes = writes;
    }

    /** Ends the loan: its views throw from now on, and so do its buffers where Java can do that. */
    void end(String reason) {
        ended = reason;
        final Scope last;
        synchronized (this) {
            last = scope;
            scope = null;
        }
        if (last != null) last.end();
    }

    void require() {
        if (ended != null) throw new MeronException(Status.STALE, ended);
    }

    /**
     * A buffer that ends with the loan, and with the context of `lifetime` if there is one; null if this
     * version of Java has none.
     */
    ByteBuffer lend(Lifetime lifetime, long address, long bytes) {
        if (!Scope.endsBuffers()) return null;
        final Scope current;
        synchronized (this) {
            require();
            if (scope == null) {
                if (lifetime != null) lifetime.add(this);
                scope = new Scope();
            }
            current = scope;
        }
        return current.buffer(address, bytes);
    }

    /** Runs a write. Who holds the monitor ends the loan before or after it, not within. */
    void write(Runnable body) {
        if (writes == null) {
            body.run();
        } else {
            synchronized (writes) {
                body.run();
            }
        }
    }
}

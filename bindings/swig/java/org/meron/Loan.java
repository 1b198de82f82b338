// SPDX-License-Identifier: Apache-2.0
package org.meron;

/** Says of some views whether their memory still is what they show. */
final class Loan {
    private final Object writes;
    private volatile String ended;

    Loan() {
        this(null);
    }

    /** `writes`: its monitor is held by each write through a view, or null. */
    Loan(Object writes) {
        this.writes = writes;
    }

    /** Ends the loan: its views throw from now on. */
    void end(String reason) {
        ended = reason;
    }

    void require() {
        if (ended != null) throw new MeronException(Status.STALE, ended);
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

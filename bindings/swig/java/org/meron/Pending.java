// SPDX-License-Identifier: Apache-2.0
package org.meron;

import java.time.Duration;
import org.meron.abi.Abi;

/** A pending operation: an {@link Operation} or a {@link Gather}. */
public interface Pending {
    /** Waits until it has ended, at most the context's deadline. Throws its error. */
    void await();

    /** Waits at most `timeout`. Returns false after the timeout; the operation continues. */
    boolean await(Duration timeout);

    /** True if it has succeeded; never blocks on peers. Throws its error. */
    boolean done();

    /**
     * Waits until one of several operations of a context has ended, well or with an error.
     *
     * @param operations of one context
     * @return the index of the first one that has ended: its await() then returns, or throws its error,
     *     at once
     * @throws MeronException HANDLE (there are none, or they belong to different contexts), STALE,
     *     CLOSED; CANCELLED when this thread is interrupted or should_stop says so.
     */
    static int awaitAny(Pending... operations) {
        return Handle.awaitAny(Abi.MERON_TIMEOUT_DEFAULT, operations);
    }

    /** The same for at most `timeout`; -1 after that. */
    static int awaitAny(Duration timeout, Pending... operations) {
        return Handle.awaitAny(Operation.nanoseconds(timeout), operations);
    }
}

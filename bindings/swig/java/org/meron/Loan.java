// SPDX-License-Identifier: Apache-2.0
package org.meron;

/** Says of some views whether their memory still is what they show. */
final class Loan {
    private volatile String ended;

    /** Ends the loan: its views throw from now on. */
    void end(String reason) {
        ended = reason;
    }

    void require() {
        if (ended != null) throw new MeronException(Status.STALE, ended);
    }
}

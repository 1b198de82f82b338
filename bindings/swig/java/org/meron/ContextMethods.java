// SPDX-License-Identifier: Apache-2.0
// Generated from include/meron/*.h by tools/generate/generate.py: do not edit.
package org.meron;

import org.meron.abi.Abi;

/** Calls of meron_context that need nothing of Java's own. */
abstract class ContextMethods extends Handle {
    ContextMethods(Release release) {
        super(release);
    }

    /**
     * The plan that the context was opened with, as JSON that meron_plan_parse reads back to an
     * equal plan; "zero3" if it was opened without one.
     *
     * <p>Never blocks.
     *
     * <p>Throws ARGUMENT, HANDLE, STALE, FORKED.
     */
    public String planJson() {
        requireOpen();
        return call(handle -> Abi.meron_context_plan_json(handle));
    }

    /**
     * The flight recorder: the last operations (up to 1,024) of every rank of the world, as
     * JSON. Works on a broken group too.
     *
     * <p>Never blocks.
     *
     * <p>Throws ARGUMENT, HANDLE, STALE, FORKED.
     */
    public String flightRecord() {
        requireOpen();
        return call(handle -> Abi.meron_context_flight_record(handle));
    }
}

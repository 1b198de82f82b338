// SPDX-License-Identifier: Apache-2.0
// Generated from include/meron/*.h by tools/generate/generate.py: do not edit.
package org.meron;

import org.meron.abi.Abi;

/** Calls of meron_schedule that need nothing of Java's own. */
abstract class ScheduleMethods extends Handle {
    ScheduleMethods(Release release) {
        super(release);
    }

    /** The context that it is of. */
    abstract Context context();

    @Override
    void requireOpen() {
        context().requireOpen();
    }

    /**
     * Releases all units that stay full or were prefetched. Call it before an update, an
     * optimizer step, a save or a load, which need all leases released. The pass and the
     * recorded orders stay. Local.
     *
     * <p>Blocks only while another thread of this rank begins an operation.
     *
     * <p>Throws STATE (names the units that are entered), HANDLE, STALE, FORKED.
     */
    public void drop() {
        requireOpen();
        call(handle -> Abi.meron_schedule_drop(handle));
    }
}

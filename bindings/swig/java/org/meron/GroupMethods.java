// SPDX-License-Identifier: Apache-2.0
// Generated from include/meron/*.h by tools/generate/generate.py: do not edit.
package org.meron;

import org.meron.abi.Abi;

/** Calls of meron_group that need nothing of Java's own. */
abstract class GroupMethods extends Handle {
    GroupMethods(Release release) {
        super(release);
    }

    /**
     * Breaks the group on every rank: pending waits end with ABORTED, which contains `reason`.
     *
     * <p>`reason`: null or text for people, at most 200 bytes are kept.
     *
     * <p>Never blocks.
     *
     * <p>Throws ARGUMENT, HANDLE, STALE, FORKED.
     */
    public void abort(String reason) {
        requireOpen();
        call(handle -> Abi.meron_group_abort(handle, reason));
    }
}

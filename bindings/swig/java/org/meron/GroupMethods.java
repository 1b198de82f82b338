// SPDX-License-Identifier: Apache-2.0
// Generated from include/meron/*.h by tools/generate/generate.py: do not edit.
package org.meron;

import org.meron.abi.Abi;

/** Calls of meron_group that need nothing of Java's own. */
abstract class GroupMethods extends Handle {
    GroupMethods(Release release) {
        super(release);
    }

    /** The context that it is of. */
    abstract Context context();

    @Override
    void requireOpen() {
        context().requireOpen();
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

    /**
     * Begins a barrier: the future ends when every rank of the group has begun it.
     *
     * <p>Blocks if this rank is 1,024 calls ahead of a peer, until that peer has followed, at most
     * the deadline; and while another thread of this rank begins an operation.
     *
     * <p>Throws ARGUMENT, HANDLE, STALE, CANCELLED, TIMEOUT, PEER_DEAD, PEER_CLOSED, MISMATCH,
     * ABORTED, AUTH, VERSION, FORKED.
     */
    public Operation barrierBegin() {
        requireOpen();
        final long future = call(handle -> Abi.meron_barrier_begin(handle));
        return new Operation(context(), future, null);
    }

    /** As barrierBegin, and waits for its end as Operation.await does. */
    public void barrier() {
        barrierBegin().finish();
    }
}

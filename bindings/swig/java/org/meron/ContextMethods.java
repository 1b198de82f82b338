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
     * A descriptor for event loops (epoll, poll, asyncio, tokio): it becomes readable when a
     * future of the context may have advanced. A thread of the engine writes to it when a peer
     * has done something, and at least 50 times a second while an operation is pending; it
     * advances no operation. In the loop, call meron_context_progress, which clears the
     * descriptor, or read its 8 bytes; then poll the futures. Clear it before the polls: what
     * comes later makes it readable again. Poll a future once after its begin, too: if it has
     * ended by then, no sign follows. Futures of io.h are of no context and have none.
     *
     * <p>Never blocks.
     *
     * <p>Throws ARGUMENT, HANDLE, STALE, CLOSED, FORKED, NO_MEMORY (no thread), IO (no descriptor
     * is left).
     */
    public int eventFd() {
        requireOpen();
        return call(handle -> Abi.meron_context_event_fd(handle));
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

    /**
     * Cancels the pending save. Any rank may do so, without the others: all of them stop
     * writing, and the save's future ends on each with CANCELLED, whose peer is a rank that
     * cancelled. If all ranks have written their files by then, the save succeeds instead, on
     * all of them. A cancelled save leaves no files, also with `overwrite` and `keep`: earlier
     * checkpoints stay as they were. If a process is killed meanwhile, a hidden directory may
     * remain (.saving-...), which the next save removes. The next save does not report the
     * cancelled one. It begins nothing and waits for nothing: wait for the future. Returns
     * MERON_OK also if no save is pending.
     *
     * <p>Never blocks.
     *
     * <p>Throws HANDLE, STALE, CLOSED, FORKED.
     */
    public void cancelSave() {
        requireOpen();
        call(handle -> Abi.meron_checkpoint_cancel_save(handle));
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meron/future.h: pending operations.
 *
 * Every operation that begins in one call and ends later is a future: a gather, an update, a
 * reduction, a step, a barrier, a save, a read of a file. The functions here wait for, poll and
 * release all of them. Functions for one kind (the views of a gather, for example) are declared
 * beside its begin, and return MERON_E_HANDLE for a future of another kind.
 *
 * The deadline of an operation is the context's timeout_ns after its begin on this rank, however
 * late the wait begins and whatever has progressed since. An operation that still waits for a peer
 * then breaks the group with MERON_E_TIMEOUT. So a rank may be that much later than the others, and
 * no more: raise timeout_ns if one rank evaluates alone for longer. Exceptions:
 *
 *   - A save has no deadline. It fails if a rank makes no progress for twice timeout_ns.
 *   - While a save copies states and progresses, no deadline passes.
 *   - A transfer of io.h ends when nothing has been transferred for the timeout_ns of its io.
 *   - A gather that a schedule has prefetched has timeout_ns from the first enter that needs it.
 */
#ifndef MERON_FUTURE_H
#define MERON_FUTURE_H

#include "meron/base.h"

MERON_BEGIN_DECLS

/* A pending operation. A value; 0 is null. */
typedef struct {
  uint64_t id;
} meron_future;

/**
 * Waits for a future.
 * @param timeout_ns  nanoseconds; MERON_TIMEOUT_DEFAULT: until the operation's own deadline (see
 *                    the top of future.h); 0: as meron_future_poll.
 * Returns MERON_IN_PROGRESS if timeout_ns passed first; the operation continues. Blocks: on peers,
 * a device's copies or a drive, at most the deadline; advances other operations of the context
 * meanwhile. Threads: any; several may wait for one future. Errors: those of the operation,
 * MERON_E_TIMEOUT, MERON_E_PEER_DEAD, MERON_E_PEER_CLOSED, MERON_E_MISMATCH, MERON_E_ABORTED,
 * MERON_E_CANCELLED, MERON_E_ARGUMENT (another negative timeout), MERON_E_HANDLE, MERON_E_STALE,
 * MERON_E_FORKED.
 */
MERON_API MERON_NODISCARD meron_status meron_future_wait(meron_future future, int64_t timeout_ns,
                                                         meron_error **err);

/**
 * Returns MERON_OK if the operation has succeeded, MERON_IN_PROGRESS if it has not ended, else its
 * error. Without `err`, a failure counts as unseen, and is logged as meron_future_release says.
 * Called from a callback, it does not advance the operation. Blocks: never on peers, a device or a
 * drive; may compute and copy. Threads: any. Errors: as meron_future_wait.
 */
MERON_API MERON_NODISCARD meron_status meron_future_poll(meron_future future, meron_error **err);

/**
 * Releases a future. A pending operation continues, so that the ranks stay in step; a pending
 * gather or update is cancelled (see meron_gather_begin, meron_update_begin). If it fails, or has
 * failed, and no wait or poll returned the error, that is logged once at level MERON_LOG_ERROR, by
 * the next call that waits or by meron_context_close; the failure of a save is reported by the next
 * save instead, or logged by the close. If the group is broken, one line is logged at the close,
 * and none if another call returned the error. Blocks: never. Threads: any, also a finalizer's.
 * Errors: MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
 */
MERON_API meron_status meron_future_release(meron_future future, meron_error **err);

/**
 * Waits for a future, then releases it: meron_future_wait and meron_future_release in one. Whatever
 * the wait returns, also an error, the future is released, with one exception: if timeout_ns passed
 * first, it returns MERON_IN_PROGRESS and the future stays. An operation whose wait should_stop
 * ended (MERON_E_CANCELLED) continues without its future, and may use its memory until the close.
 * @param timeout_ns  as in meron_future_wait.
 * Ownership: takes the future, unless it returns MERON_IN_PROGRESS. Blocks: as meron_future_wait.
 * Threads: any. Errors: as meron_future_wait, MERON_E_HANDLE also for an update, which
 * meron_update_publish ends; after MERON_E_ARGUMENT and MERON_E_HANDLE the future stays.
 */
MERON_API MERON_NODISCARD meron_status meron_future_finish(meron_future future, int64_t timeout_ns,
                                                           meron_error **err);

/**
 * Waits until one of several futures has ended, well or with an error, and says which: the first
 * such one of the array. It returns no error of an operation: meron_future_finish, wait or poll of
 * that future returns it, and then does not wait. Local: other ranks may wait for other futures.
 * @param out         receives the index of a future that has ended; `count` if none has.
 * @param futures     of one context. Null ones are skipped: set a future to null once it is
 * finished.
 * @param count       futures in the array.
 * @param timeout_ns  nanoseconds; MERON_TIMEOUT_DEFAULT: as long as the operations' own deadlines;
 *                    0: looks once.
 * Returns MERON_IN_PROGRESS if timeout_ns passed first. Ownership: all futures stay the caller's.
 * Blocks: as meron_future_wait. Threads: any. Errors: MERON_E_ARGUMENT (NULL, another negative
 * timeout), MERON_E_HANDLE (all futures are null, one belongs to another context, or one is a
 * transfer of io.h, which belongs to none), MERON_E_STALE, MERON_E_CANCELLED (should_stop),
 * MERON_E_CLOSED, MERON_E_FORKED.
 */
MERON_API MERON_NODISCARD meron_status meron_future_wait_any(size_t *out,
                                                             const meron_future *futures,
                                                             size_t count, int64_t timeout_ns,
                                                             meron_error **err);

MERON_END_DECLS

#endif /* MERON_FUTURE_H */

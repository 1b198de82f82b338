/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meron/future.h: operations under way.
 *
 * Whatever is begun and ends later is a future: a gather, an update, a reduction, a step, a
 * barrier, a save, a read of a file. All are waited for, polled and released by the three functions
 * here; what else can be done with one (the views of a gather, say) is declared where it is begun,
 * and a future of another kind gives MERON_E_HANDLE there.
 */
#ifndef MERON_FUTURE_H
#define MERON_FUTURE_H

#include "meron/base.h"

MERON_BEGIN_DECLS

/* An operation under way. A value; 0 is null. */
typedef struct {
  uint64_t id;
} meron_future;

/**
 * Waits for a future.
 * @param timeout_ns  nanoseconds; MERON_TIMEOUT_DEFAULT: until the operation's own deadline; 0: as
 *                    meron_future_poll.
 * Returns MERON_IN_PROGRESS when timeout_ns passed first; the operation goes on.
 * Blocks: on peers, a device's copies or a drive, at most the deadline; advances other operations
 * of the context meanwhile. Threads: any; several may wait for one future. Errors: those of the
 * operation, MERON_E_TIMEOUT, MERON_E_PEER_DEAD, MERON_E_PEER_CLOSED, MERON_E_MISMATCH,
 * MERON_E_ABORTED, MERON_E_CANCELLED, MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
 */
MERON_API MERON_NODISCARD meron_status meron_future_wait(meron_future future, int64_t timeout_ns,
                                                         meron_error **err);

/**
 * MERON_OK when the operation has ended well, MERON_IN_PROGRESS when it has not ended, else its
 * error. Without `err` a save that has failed counts as not told: the next save reports it.
 * Blocks: never on peers, a device or a drive; may compute and copy. Threads: any. Errors: as
 * meron_future_wait.
 */
MERON_API MERON_NODISCARD meron_status meron_future_poll(meron_future future, meron_error **err);

/**
 * Releases a future. An operation under way goes on, so that the ranks stay in step; a gather and
 * an update are given up (see meron_gather_begin, meron_update_begin). Blocks: never. Threads: any,
 * also a finalizer's. Errors: MERON_E_HANDLE, MERON_E_STALE.
 */
MERON_API meron_status meron_future_release(meron_future future, meron_error **err);

MERON_END_DECLS

#endif /* MERON_FUTURE_H */

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meron/meron.h: all of Meron's public C interface.
 *
 * Three levels of use:
 *
 *   1. Gather a sharded tensor. Open a context (context.h), register a param and put it into
 *      a unit (param.h), write it in an update, gather it (gather.h). examples/01_gather.
 *   2. Train. Gather a unit before its layer runs and release it after; write gradients into the
 *      unit's bucket and reduce them (reduce.h); step the optimizer (optimizer.h).
 *      examples/02_language_model.
 *      Save, and resume at any number of ranks (checkpoint.h). A schedule (schedule.h) prefetches
 *      in the order of the previous pass.
 *   3. Choose a strategy. A plan (plan.h) specifies which state is sharded; nothing else changes.
 *
 * Beside these, and without a context: files past the page cache (io.h).
 *
 * Common rules:
 *
 *   - Handles are values. A stale, null, foreign or wrong handle gives an error, never a crash.
 *   - Out parameters come first, `meron_error **err` comes last and may be NULL (see base.h).
 *   - A begin does not wait for its operation to end; the calls that wait, poll or progress advance
 *     it. A begin waits only if this rank is 1,024 calls ahead of a peer, while another thread of
 *     this rank begins an operation, and for what its "Blocks" names.
 *   - A wait for peers has a deadline, the context's timeout_ns. An error of class -3xx breaks the
 *     group on all of its ranks. Some waits have no deadline. meron_checkpoint_wait_copied,
 *     meron_context_close, the next save, a load and an export wait for a pending save to end.
 *     meron_unit_destroy and meron_optimizer_create wait until it has copied. The waits of io.h
 *     last as long as transfers progress. meron_context_close also waits for running callbacks.
 *   - Calls are safe from any thread, but for what their "Threads" excludes: one thread at a time
 *     enters a schedule's units, destroys a unit, or reads a checkpoint, and some calls on an
 *     optimizer must not be made during its step.
 *   - Nothing here installs a signal handler or listens on a port.
 *   - After fork, the child gets MERON_E_FORKED.
 *
 * The rule of callbacks: log, should_stop, and the functions of a device allocator and of a
 * transport, may only look and release. They may read infos, counters, names, texts, errors, plans
 * and views of ended operations. They may call meron_future_poll, all releases, meron_io_close and
 * meron_group_abort; log and should_stop also meron_context_close. Each other function returns
 * MERON_E_STATE there. No lock of the library is held around a callback.
 */
#ifndef MERON_MERON_H
#define MERON_MERON_H

#include "meron/base.h"
#include "meron/checkpoint.h"
#include "meron/context.h"
#include "meron/future.h"
#include "meron/gather.h"
#include "meron/group.h"
#include "meron/io.h"
#include "meron/optimizer.h"
#include "meron/param.h"
#include "meron/plan.h"
#include "meron/reduce.h"
#include "meron/schedule.h"
#include "meron/transport.h"

#endif /* MERON_MERON_H */

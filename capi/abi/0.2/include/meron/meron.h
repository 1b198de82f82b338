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
 *   - Out parameters come first, `meron_error **err` comes last and may be NULL.
 *   - A begin returns at once; progress is made by the calls that wait, poll or progress.
 *   - Every wait has a deadline. An error of class -3xx breaks the group on all of its ranks.
 *   - Calls are safe from any thread. Nothing here installs a signal handler or listens on a port.
 *   - After fork, the child gets MERON_E_FORKED.
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

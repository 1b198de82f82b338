/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meron/meron.h: all of Meron's public C interface. This page explains it from the beginning; the
 * other headers are its reference.
 *
 * Meron trains a model that is too large for one process or one device. Several processes, the
 * ranks, train it together, and each keeps a part of every tensor, its shard. A full tensor exists
 * only while a layer computes with it (ZeRO: Rajbhandari et al., arXiv 1910.02054).
 *
 * ## Five ideas
 *
 *   - Context: this rank's engine. To open it connects the ranks.
 *   - Unit: params that are gathered and reduced together, usually those of one layer.
 *   - Gather: makes the full values of a unit readable on this rank, until it is released.
 *   - Reduce: averages the gradients of a unit over the ranks. Each rank gets its shard of them.
 *   - Step: an optimizer changes the shards. The next gather gets the new values.
 *
 * ## A program
 *
 * It moves 1,000 numbers towards 3, and prints "loss 0.0000". Compile it with -lmeron, and run it
 * as one process (./fit) or as several (meron run -n 4 -- ./fit). The result is the same.
 *
 *     #include <meron/meron.h>
 *     #include <stdio.h>
 *     #include <stdlib.h>
 *
 *     static meron_error *error;
 *     static void check(meron_status status) {
 *       if (status != MERON_OK) puts(meron_error_message(error)), exit(1);
 *     }
 *     static void finish(meron_future future) {
 *       check(meron_future_wait(future, MERON_TIMEOUT_DEFAULT, &error));
 *       check(meron_future_release(future, &error));
 *     }
 *
 *     int main(void) {
 *       meron_context context;
 *       check(meron_context_open(&context, NULL, &error));
 *
 *       const int64_t shape[] = {1000};
 *       meron_param_desc desc = MERON_PARAM_DESC_INIT;
 *       desc.name = "weight", desc.shape = shape, desc.dims = 1;
 *       meron_param weight;
 *       meron_unit unit;
 *       check(meron_param_register(&weight, context, &desc, &error));
 *       check(meron_unit_create(&unit, context, "layer", &weight, 1, &error));
 *
 *       meron_optimizer_options options = MERON_OPTIMIZER_SGD_INIT;
 *       options.learning_rate = 0.1;
 *       meron_optimizer optimizer;
 *       check(meron_optimizer_create(&optimizer, &unit, 1, &options, &error));
 *
 *       double loss = 0;
 *       for (int step = 0; step < 100; ++step) {
 *         meron_future gather, reduction, update;
 *         meron_view full, gradient;
 *         check(meron_gather_begin(&gather, &unit, 1, NULL, &error));
 *         check(meron_future_wait(gather, MERON_TIMEOUT_DEFAULT, &error));
 *         check(meron_gather_view(&full, gather, weight, &error));
 *         check(meron_gradient_view(&gradient, weight, MERON_GRADIENT_OVERWRITE, &error));
 *         loss = 0;
 *         for (int i = 0; i < 1000; ++i) {
 *           const float distance = ((const float *)full.data)[i] - 3;
 *           ((float *)gradient.data)[i] = 2 * distance;
 *           loss += distance * distance;
 *         }
 *         check(meron_future_release(gather, &error));
 *         check(meron_reduce_begin(&reduction, unit, NULL, 0, NULL, &error));
 *         finish(reduction);
 *         check(meron_optimizer_step_begin(&update, optimizer, &error));
 *         finish(update);
 *       }
 *       printf("loss %.4f\n", loss);
 *       return meron_context_close(context, NULL);
 *     }
 *
 * ## Further
 *
 *   - A trainer overlaps communication with computation: it begins the next layer's gather before
 *     this layer computes, or lets a schedule do so (schedule.h). It saves, and resumes at any
 *     number of ranks (checkpoint.h). examples/02_language_model is one.
 *   - A strategy is a plan (plan.h). It says which states are sharded, where they are kept and how
 *     they are sent. The program stays as it is.
 *   - Initial values: an update (param.h) writes the values of a unit, and so does a checkpoint.
 *   - An optimizer of one's own gets this rank's part of the gradients from meron_reduced_view
 *     (reduce.h).
 *   - Some of the ranks: group.h. Another network: transport.h. A device: backend.h.
 *   - Files past the page cache, also without a context: io.h.
 *
 * ## Rules
 *
 *   - Handles are values. A stale, null, foreign or wrong handle gives an error, never a crash.
 *   - Out parameters come first, `meron_error **err` comes last and may be NULL (see base.h).
 *   - Collective: each rank of the group makes the same calls in the same order. If one differs,
 *     all get MERON_E_MISMATCH, and the error says which call differs in what.
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
 *
 * ## Words
 *
 *   - Bucket: the memory in which a rank collects the gradient of a unit before it is reduced.
 *   - Flat: the params of one dtype of a unit, one after another. It is cut into shards.
 *   - Frozen: said of a param without a gradient and without optimizer states.
 *   - Future: the handle of something that was begun. Wait for it, then release it.
 *   - Group: some ranks, or all (the world), whose calls are collective.
 *   - Lease: what a gather holds. While it lives, the values in its views do not change.
 *   - Master: the f32 copy of a param of 16 bits, which the optimizer changes.
 *   - Micro-batch: one forward and backward pass. A step takes the gradients of one or more.
 *   - Plan: which of params, gradients and states are sharded, and where they are kept.
 *   - Publish: makes the values of an update, or of a step, those that the next gather gets.
 *   - Rank: one of the processes (or threads) that train together, numbered from 0.
 *   - Replica: a full copy. Under MiCS each small group of ranks holds one.
 *   - Shard: the part of a tensor that one rank keeps.
 *   - Tier: where something is kept, that is on the device, in memory of the host, or on NVMe.
 *   - View: address, shape and dtype of memory of the library that is lent to the caller.
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

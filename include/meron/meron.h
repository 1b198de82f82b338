/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meron/meron.h: all that a trainer needs of Meron's public C interface. This page explains it from
 * the beginning; the other headers are its reference. (backend.h is for those who write a device.)
 *
 * Meron trains a model that is too large for one process or one device. Several processes, the
 * ranks, train it together, and each keeps a part of every tensor, its shard. A full tensor exists
 * only while a layer computes with it (ZeRO: Rajbhandari et al., arXiv 1910.02054).
 *
 * ## Six ideas
 *
 *   - Context: this rank's engine. Opening it connects this rank to the others.
 *   - Param: a tensor that is trained. Those of one layer are a unit, and are gathered and reduced
 *     together.
 *   - Gather: makes the full values of a unit readable on this rank, until it is released.
 *   - Gradient: each rank writes its own, of its own data, for the full tensors.
 *   - Reduce: averages the gradients of a unit over the ranks. Each rank keeps its shard of them.
 *   - Step: an optimizer changes the shards. A gather that begins when it has ended gets the new
 *     values; to begin one meanwhile is an error.
 *
 * A function whose name ends in begin returns a future: a handle to wait for, and to release.
 *
 * ## A program
 *
 * Each rank has one sample of its own: 1 on rank 0, 3 on rank 1, 5 on rank 2 and so on. The program
 * moves 1,000 numbers from 0 to the mean of all samples, and rank 0 prints it. As one process
 * (./fit) it prints "mean 1.0000", as four (meron run -n 4 -- ./fit) "mean 4.0000". `meron run`
 * tells the ranks of each other by variables of the environment; without it there is one rank.
 *
 *     #include <meron/meron.h>
 *     #include <stdio.h>
 *     #include <stdlib.h>
 *
 *     static meron_error *error;
 *     static void check(meron_status status) {
 *       if (status != MERON_OK) puts(meron_error_message(error)), exit(1);
 *     }
 *
 *     int main(void) {
 *       meron_context context;
 *       int32_t rank;
 *       check(meron_context_open(&context, NULL, &error));  // NULL: the default options
 *       check(meron_context_rank(&rank, context, &error));
 *       const float sample = (float)(2 * rank + 1);
 *
 *       const int64_t shape[] = {1000};
 *       meron_param_desc desc = MERON_PARAM_DESC_INIT;  // f32
 *       desc.name = "weight", desc.shape = shape, desc.dims = 1;
 *       meron_param weight;
 *       meron_unit unit;  // here of one param
 *       check(meron_param_register(&weight, context, &desc, &error));
 *       check(meron_unit_create(&unit, context, "layer", &weight, 1, &error));
 *
 *       meron_optimizer_options options = MERON_OPTIMIZER_SGD_INIT;
 *       options.learning_rate = 0.1;
 *       meron_optimizer optimizer;  // of one unit
 *       check(meron_optimizer_create(&optimizer, &unit, 1, &options, &error));
 *
 *       float mean = 0;
 *       for (int step = 0; step < 100; ++step) {
 *         meron_future gather, reduction, stepping;
 *         meron_view full, gradient;
 *         check(meron_gather_begin(&gather, &unit, 1, NULL, &error));
 *         check(meron_future_wait(gather, MERON_TIMEOUT_DEFAULT, &error));
 *         check(meron_gather_view(&full, gather, weight, &error));
 *         check(meron_gradient_view(&gradient, weight, 0, &error));  // zeros, to add to
 *         for (int i = 0; i < 1000; ++i) {
 *           ((float *)gradient.data)[i] += 2 * (((const float *)full.data)[i] - sample);
 *         }
 *         mean = ((const float *)full.data)[0];
 *         check(meron_future_release(gather, &error));  // from here on `full` must not be read
 *         check(meron_reduce_begin(&reduction, unit, NULL, 0, NULL, &error));
 *         check(meron_future_finish(reduction, MERON_TIMEOUT_DEFAULT, &error));
 *         check(meron_optimizer_step_begin(&stepping, optimizer, &error));
 *         check(meron_future_finish(stepping, MERON_TIMEOUT_DEFAULT, &error));
 *       }
 *       if (rank == 0) printf("mean %.4f\n", mean);
 *       check(meron_context_close(context, &error));  // frees all that was made from it
 *       return 0;
 *     }
 *
 * A larger model has a unit per layer. Forward gathers each before its layer runs and releases it
 * after, and backward does so again, in the other order. Backward also writes each unit's gradients
 * and begins their reduction. Before the step, meron_reduce_wait waits for all reductions. Several
 * gathers may be alive at a time, but none during a step.
 *
 * Read next param.h, gather.h, reduce.h and optimizer.h, then checkpoint.h, future.h and context.h.
 *
 * ## Further
 *
 *   - Overlap: begin the next layer's gather before this layer computes, or let a schedule do so
 *     (schedule.h). examples/02_language_model is a whole trainer.
 *   - Several micro-batches per step, and gradients in memory of your own: reduce.h.
 *   - Initial values: an update (param.h) writes them, each rank its shard. They are zero before.
 *   - Checkpoints are saved beside the training, and loaded at any number of ranks (checkpoint.h).
 *   - A plan (plan.h) says what is sharded, where it is kept and how it is sent. It is one of the
 *     options of a context. The rest of the program stays as it is.
 *   - An optimizer of your own gets this rank's shard of the gradients from meron_reduced_view.
 *   - Ranks on several hosts, and ranks that are threads: context.h. Groups of ranks: group.h.
 *   - Views are in memory of the host unless a context is opened with a device (context.h).
 *   - Reading and writing files without the page cache, also without a context: io.h.
 *
 * ## Rules
 *
 *   - Handles are values. A null or stale handle, or one of another kind or context, gives an
 *     error, never a crash. Views are addresses: "Ownership" says when one ends.
 *   - Out parameters come first. `meron_error **err` comes last and may be NULL. A call that fails
 *     puts a new object there, which the caller frees (see base.h).
 *   - "Errors" need not repeat what each function may return: MERON_E_FORKED in a child after fork,
 *     MERON_E_STATE within a callback (see below), MERON_E_NO_MEMORY if the process has none for
 *     the call, and, if it blocks, MERON_E_CANCELLED (should_stop) and MERON_E_CLOSED (another
 *     thread closes the context).
 *   - Collective: each rank of the group makes the same calls in the same order. If one differs,
 *     all get MERON_E_MISMATCH, and the error names the call and the argument. A begin that returns
 *     an error of -1xx was not made: peers wait until this rank makes it.
 *   - A begin returns before its operation has ended. An operation advances within calls that wait,
 *     poll or progress; over MPI also on a thread of the library, if MPI permits it. A save has a
 *     thread of its own. A begin can still wait in three cases: this rank is 1,024 calls ahead of a
 *     peer, another thread of this rank is in the middle of a begin, or the "Blocks" of the
 *     function names a case.
 *   - A wait for peers ends at the operation's deadline, timeout_ns after its begin (see future.h).
 *   - An error can break the group, on all of its ranks (see meron_status). After an error, ask
 *     meron_group_status. If it is not MERON_OK, close the context, open one again, in this process
 *     or, after a rank's death, in new processes, and load a checkpoint. `meron run` starts no rank
 *     again: if one fails, it ends the others.
 *   - These waits have no deadline. The next save, a load, an export and meron_context_close wait
 *     until a pending save has ended. An export waits for the writes of all ranks.
 *     meron_checkpoint_wait_copied, meron_unit_destroy, meron_optimizer_create and other calls on
 *     states wait until a save has copied them: meron_checkpoint_save_begin has the list. The waits
 *     of io.h, but for meron_io_close, last as long as transfers progress. meron_context_close also
 *     waits for running callbacks, except for the one that it is called from.
 *   - Any thread may call any function, except where its "Threads" forbids it: one thread at a time
 *     enters a schedule's units, destroys a unit, or reads a checkpoint, and some calls on an
 *     optimizer must not be made during its step.
 *   - Nothing here installs a signal handler or listens on a port.
 *
 * The rule of callbacks, functions of yours that the library calls: log, should_stop (context.h),
 * and those of a device allocator and of a transport. In them you may call what only reads: infos,
 * counters, names, texts, errors, plans, and views of operations that have ended. You may also call
 * meron_future_poll, all releases, meron_io_close, meron_group_abort and
 * meron_checkpoint_cancel_save; in log and should_stop also meron_context_close. Each other
 * function returns MERON_E_STATE there. No lock of the library is held around a callback.
 *
 * ## Words of the other headers
 *
 *   - Accumulation: the sum of the gradients of several micro-batches. It ends at the boundary, the
 *     last of them before the step.
 *   - Arena: this rank's memory that the library allocates for its objects, limited by
 *     host_memory_limit. Window: address space that the ranks of a host share.
 *   - Bucket: the memory in which a rank collects the gradient of a unit before it is reduced.
 *   - Codec: an encoding in fewer bits, for values and gradients that replicas exchange. Feedback:
 *     the part of gradients that a codec has lost, kept to be added to the next ones.
 *   - Finalizer: code that a garbage collector runs. "Also a finalizer's" is said of a call that
 *     waits for no other thread and calls no callback.
 *   - Flat: the params of a unit that have one dtype and are all trained or all frozen, one after
 *     another with padding. It is cut into shards.
 *   - Frozen: said of a param without a gradient and without optimizer states.
 *   - Group: some ranks, or all (the world), whose calls are collective. Of an optimizer: params
 *     with the same hyperparameters.
 *   - Lease: what a gather holds. While it lives, the values in its views do not change.
 *   - Line: checkpoints of a folder that continue each other (checkpoint.h).
 *   - Master: the f32 copy of a param of 16 bits, which the optimizer changes.
 *   - Micro-batch: one forward and backward pass. A step takes the gradients of one or more.
 *   - Node: a host, or rather the ranks on it, which share memory.
 *   - Publish: gives the values of an update, or of a step, to the gathers that follow.
 *   - Rank: one of the processes (or threads) that train together, numbered from 0.
 *   - Replica: a full copy of the states. Under MiCS each small group of ranks holds one.
 *   - Secondary partition: what a rank keeps of the values that came from other replicas, from
 *     forward to the next step, so that backward gathers them on its node (hpZ, plan.h).
 *   - State: a number that an optimizer keeps of an element, such as the average of its gradients.
 *     In checkpoint.h and plan.h values, masters and gradients are states too.
 *   - Tier: where something is kept, that is on the device, in memory of the host, or on NVMe.
 *   - View: address, number of elements and dtype of memory of the library that is lent to the
 *     caller.
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

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meron/reduce.h: reduction of gradients to the ranks that update the params, by reduce-scatters.
 *
 * The gradient of a unit is collected in a bucket, memory of this rank that peers read in place.
 * Either the trainer writes there (meron_gradient_view: no copy), or passes its own arrays to
 * meron_reduce_begin (staged). Sums are in f32, in rank order: equal bits in every run.
 *
 * Under a plan that shards gradients (zero2, zero3) all units of this rank share the plan's
 * `gradient_buckets`, 2 by default. A unit takes one at its first gradient of a micro-batch, and
 * returns it when its reduction has ended and peers have read it. So begin the reduction of one
 * unit before the gradients of the next. Under a plan that keeps full gradients (zero0, zero1) each
 * unit has a bucket of its own, which adds up the micro-batches, so all units may be filled first.
 *
 * The gradient of a unit is, on each rank, in one of five states. A call that does not fit the
 * state returns MERON_E_STATE, which names the state, and changes nothing.
 *
 *   empty     nothing is held. meron_gradient_view: filling. meron_reduce_begin, with sources or
 *             (for zeros) without: reducing. meron_reduce_finish_begin: ready, for zeros.
 *   filling   the trainer writes a micro-batch. A further meron_gradient_view shows this or another
 *             param in the same bucket. meron_reduce_begin: reducing. There is no other way out: to
 *             abandon it, reduce it with `boundary` 0 and discard it, on all ranks.
 *   reducing  peers read it. When the future has ended: partial, or ready if `boundary` was 1. The
 *             unit's next gradient, by any function, waits for that.
 *   partial   micro-batches are summed, and more follow. Another one: filling or reducing.
 *             meron_reduce_finish_begin: ready, without another micro-batch. meron_reduce_discard,
 *             on all ranks: empty.
 *   ready     the sum is complete: meron_reduced_view shows it. A new gradient is an error.
 *             meron_optimizer_step_begin uses it: empty when the step has ended, also with
 *             MERON_E_NONFINITE. meron_reduce_consume, meron_reduce_discard: empty.
 */
#ifndef MERON_REDUCE_H
#define MERON_REDUCE_H

#include "meron/base.h"
#include "meron/context.h"
#include "meron/group.h"
#include "meron/param.h"

MERON_BEGIN_DECLS

/* A gradient in the caller's memory. */
typedef struct {
  meron_param param;
  const void
      *data; /* the full tensor, row-major; in memory of the host, or of the context's device */
  uint64_t count;      /* its elements */
  meron_dtype dtype;   /* of the data; converted to the plan's gradient dtype */
  uint32_t reserved_0; /* must be 0 */
} meron_source;

/* Flags of meron_gradient_view. */
#define MERON_GRADIENT_OVERWRITE 1u /* the caller writes all of the view: skip the zeroing */

/**
 * The memory in this rank's bucket for the gradient of `param`, writable, in memory of the host:
 * the trainer adds to it. Under a plan that shards gradients it is zero at the start of each
 * micro-batch. Under one that keeps them full it is zero at the start of an accumulation, and later
 * has the sum of the micro-batches so far: always add then. Its dtype is the plan's gradient dtype.
 * With "auto", the default, that is the param's own; full gradients of a 16-bit param are f32 from
 * the second micro-batch on.
 * @param flags  0, or MERON_GRADIENT_OVERWRITE if the view would be zero: it is not cleared, and
 *               may have old values. The first call for the param in a micro-batch counts.
 * Ownership: borrowed until meron_reduce_begin of the unit. Blocks: on peers that still read the
 * bucket's last contents, at most the deadline. The unit's first gradient allocates the memory of
 * gradients, which meron_unit_create has only counted. Threads: any. Errors: MERON_E_ARGUMENT,
 * MERON_E_STATE (frozen, not in a unit, the gradient is reduced and not used, or all buckets are
 * being filled), MERON_E_UNSUPPORTED (the gradient is summed on the device: pass sources to
 * meron_reduce_begin), MERON_E_NO_MEMORY (nothing has changed: the call may be made again),
 * MERON_E_HANDLE, MERON_E_STALE, MERON_E_CANCELLED (no bucket is taken), -3xx, also of another
 * group if its reduction keeps the buckets.
 */
MERON_API MERON_NODISCARD meron_status meron_gradient_view(meron_view *out, meron_param param,
                                                           uint64_t flags, meron_error **err);

/* Options of a reduction. */
typedef struct {
  uint32_t struct_size; /* sizeof(meron_reduce_options) */
  meron_reduce_op op;   /* MERON_REDUCE_OP_MEAN divides by the group's size, once, as `divisor` */
  uint32_t boundary;    /* 1: last micro-batch before the step; 0: more follow */
  uint32_t reserved_0;  /* must be 0 */
  double divisor;       /* additional divisor of the sum, e.g. the number of micro-batches, times
                           the loss scale. The complete sum is divided once, as the call with
                           `boundary` 1 says; in each call all ranks pass the same. With a codec
                           that has feedback, give the same one for each micro-batch of an
                           accumulation: what was lost of the accumulation before is scaled by the
                           change, so that it counts as much as it did */
  void *stream; /* sources on the device are read after the work that is queued on this stream so
                   far; NULL: its default stream */
} meron_reduce_options;

/* Initial value of a meron_reduce_options. */
#define MERON_REDUCE_OPTIONS_INIT \
  { MERON_SIZEOF_U32(meron_reduce_options), MERON_REDUCE_OP_MEAN, 1, 0, 1.0, NULL }

/**
 * Fills the first `struct_size` bytes of *options with the initial value (for languages without
 * macros).
 * Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT.
 */
MERON_API MERON_NODISCARD meron_status meron_reduce_options_init(meron_reduce_options *options,
                                                                 size_t struct_size,
                                                                 meron_error **err);

/**
 * Begins the reduction of a unit's gradients of one micro-batch. Collective over the unit's group.
 * Under a plan that keeps full gradients, a call with boundary 0 only accumulates: no
 * communication.
 * @param out      receives the future. NULL: no wait for this reduction alone. It progresses in
 *                 every wait of this rank, the unit's next gradient waits for it, and its failure
 *                 breaks the group. Before a step, call meron_reduce_wait.
 * @param sources  NULL: the bucket was filled through meron_gradient_view. Else `count` gradients;
 *                 params without one count as zero.
 * @param options  NULL for a mean at the boundary.
 * Ownership: the caller releases *out; sources on the host are read during the call, those on the
 * device until the reduction has ended: do not change these before a wait for the future, or
 * meron_reduce_wait, has returned. Blocks: as meron_barrier_begin; from another state than filling,
 * also as meron_gradient_view; if a device has the codec's feedback, also while a save copies
 * states. Threads: any. Errors: MERON_E_ARGUMENT (a wrong count, a param of another unit, a source
 * on another device), MERON_E_DEVICE, MERON_E_DUPLICATE, MERON_E_STATE (reduced already and not
 * used, or all params frozen), MERON_E_HANDLE, MERON_E_STALE, -3xx; and as meron_gradient_view.
 */
MERON_API MERON_NODISCARD meron_status meron_reduce_begin(meron_future *out, meron_unit unit,
                                                          const meron_source *sources, size_t count,
                                                          const meron_reduce_options *options,
                                                          meron_error **err);

/**
 * Waits until the last reduction and the last end of an accumulation of each unit have ended, also
 * those without a future. One call for many units.
 * @param units       `count` units, also of several groups; a unit with no reduction counts as
 *                    done.
 * @param timeout_ns  of the whole call; as in meron_future_wait.
 * Returns MERON_IN_PROGRESS if timeout_ns passed first; all operations continue. Blocks: as
 * meron_future_wait. Threads: any. Errors: as meron_future_wait; MERON_E_ARGUMENT (no unit),
 * MERON_E_HANDLE (units of several contexts).
 */
MERON_API MERON_NODISCARD meron_status meron_reduce_wait(const meron_unit *units, size_t count,
                                                         int64_t timeout_ns, meron_error **err);

/**
 * The reduced gradient of the shard of `param` that this rank updates, f32, writable, in memory of
 * the host: a sum on the device is copied there, and back by a step. It is for trainers with their
 * own optimizer, or for changes: a step of Meron's optimizer computes norm, clipping and its test
 * for NaN and infinity from the current content. Ownership: borrowed until the next gradient of the
 * unit is begun, a step, or meron_reduce_discard. Blocks: only while another thread of this rank
 * begins an operation, and while a device copies the sum. Threads: any.
 * Errors: MERON_E_STATE (no boundary reduction has ended), MERON_E_DEVICE, MERON_E_ARGUMENT,
 * MERON_E_HANDLE, MERON_E_STALE.
 */
MERON_API MERON_NODISCARD meron_status meron_reduced_view(meron_view *out, meron_param param,
                                                          meron_error **err);

/**
 * The same as a DLPack tensor (version 1.x, of the CPU): one dimension, the param's shard_count
 * elements of f32, writable. The gradient is lent until its deleter is called: until then a step,
 * meron_reduce_consume, meron_reduce_discard and meron_unit_destroy of the unit return
 * MERON_E_STATE. Ownership: the caller calls (*out)->deleter(*out) once, on any thread; until then
 * the memory stays valid, also after the context was closed. Blocks: as meron_reduced_view; the
 * deleter never. Threads: any. Errors: as meron_reduced_view; MERON_E_STATE also while a step uses
 * the gradient.
 */
MERON_API MERON_NODISCARD meron_status meron_reduced_dlpack(struct DLManagedTensorVersioned **out,
                                                            meron_param param, meron_error **err);

/**
 * Computes the global 2-norm of the reduced gradients of some units, and scales them to at most
 * `max_norm`, for an optimizer of the trainer's own: as torch.nn.utils.clip_grad_norm_. The norm is
 * exact, so that it has the same bits for every number of ranks and every plan. Norm and scaled
 * gradients have the bits with which a step of Meron's optimizer with `max_norm` works. Collective
 * over the units' group, with equal units and max_norm.
 * @param out       receives the norm before scaling, equal on all ranks.
 * @param units     `count` units of one group, each with a reduced gradient. Units whose params are
 *                  all frozen are passed over.
 * @param max_norm  gradients are multiplied, in f32, by max_norm / (norm + 1e-6) if that is below
 *                  1; 0: they are only measured.
 * Ownership: none. Views of meron_reduced_view stay valid, and must not be written meanwhile; until
 * the call has ended, a new one is MERON_E_STATE. On a device, gradients travel to the host: see
 * meron_reduced_view. Blocks: until every rank has called it, at most the deadline. Threads: any.
 * Errors: MERON_E_NONFINITE on all ranks (a gradient is NaN or infinite: the message has param,
 * element and rank, of a gradient on a device unit and rank; no gradient is changed, so
 * meron_reduce_discard them), MERON_E_ARGUMENT (no unit, no unit that trains, a negative or
 * infinite max_norm), MERON_E_DUPLICATE (a unit twice), MERON_E_STATE (names the unit that is not
 * reduced, or is in use by a step), MERON_E_CANCELLED (should_stop: the gradients are scaled once
 * all peers have called it), MERON_E_NO_MEMORY (the call may be made again), MERON_E_DEVICE,
 * MERON_E_MISMATCH, MERON_E_HANDLE, MERON_E_STALE, -3xx.
 */
MERON_API MERON_NODISCARD meron_status meron_gradient_clip(double *out, const meron_unit *units,
                                                           size_t count, double max_norm,
                                                           meron_error **err);

/**
 * Ends an accumulation without another micro-batch: all of them had boundary 0, and the result has
 * the same bits as if the last one had boundary 1. Under a plan that shards gradients, no bytes
 * move and the sum is scaled; under a plan that keeps full gradients, the accumulated gradient is
 * reduced. A rank without a gradient contributes zeros. Collective over the unit's group.
 * @param out      receives the future; NULL as in meron_reduce_begin. When it has ended, the
 *                 gradient is reduced.
 * @param options  op and divisor; boundary must be 1. NULL for a mean.
 * Ownership: the caller releases *out. Blocks: as meron_barrier_begin; if the end moves gradients,
 * also as meron_reduce_begin. Threads: any. Errors: MERON_E_ARGUMENT, MERON_E_STATE (the gradient
 * is written but not passed to meron_reduce_begin, or reduced and not used, or all params are
 * frozen), MERON_E_NO_MEMORY (as meron_gradient_view), MERON_E_HANDLE, MERON_E_STALE, -3xx.
 */
MERON_API MERON_NODISCARD meron_status meron_reduce_finish_begin(
    meron_future *out, meron_unit unit, const meron_reduce_options *options, meron_error **err);

/**
 * Declares the reduced gradient of a unit as used by an optimizer of the trainer's own. If the
 * codec has feedback, the next gradient makes up for what was lost of this one. Blocks: only while
 * another thread of this rank begins an operation. Threads: any. Errors: MERON_E_STATE (there is
 * none, or a reduction or step is pending), MERON_E_HANDLE, MERON_E_STALE.
 */
MERON_API MERON_NODISCARD meron_status meron_reduce_consume(meron_unit unit, meron_error **err);

/**
 * Throws the reduced gradient of a unit away, or before the accumulation boundary the accumulation:
 * then all ranks of the group must do the same. The codec's feedback, which is of this gradient, is
 * thrown away too. Call meron_reduce_consume instead if an optimizer has used the gradient. Blocks:
 * while another thread of this rank begins an operation and, if there is feedback, while a save
 * copies it. Threads: any. Errors: MERON_E_STATE (there is neither, or a reduction or step is
 * pending), MERON_E_HANDLE, MERON_E_STALE.
 */
MERON_API MERON_NODISCARD meron_status meron_reduce_discard(meron_unit unit, meron_error **err);

/**
 * Multiplies the codec's feedback, which is what it has lost of gradients so far. Call it if a loss
 * scale changes that is not a part of options.divisor, with the new scale divided by the old one.
 * Does nothing if the plan has no feedback.
 * @param factor  of the next gradients to those before, 0 or more; 0 drops the feedback.
 * Blocks: while another thread of this rank begins an operation and, if there is feedback, while a
 * save copies it. Threads: any. Errors: MERON_E_ARGUMENT (the factor), MERON_E_STATE (a reduction
 * is pending), MERON_E_HANDLE, MERON_E_STALE.
 */
MERON_API MERON_NODISCARD meron_status meron_reduce_scale_feedback(meron_unit unit, double factor,
                                                                   meron_error **err);

MERON_END_DECLS

#endif /* MERON_REDUCE_H */

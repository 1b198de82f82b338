/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meron/optimizer.h: update rules on this rank's shards.
 */
#ifndef MERON_OPTIMIZER_H
#define MERON_OPTIMIZER_H

#include "meron/base.h"
#include "meron/context.h"
#include "meron/param.h"

MERON_BEGIN_DECLS

/* States and update rule for some units. A value; 0 is null. */
typedef struct {
  uint64_t id;
} meron_optimizer;

/* The update rule. */
typedef int32_t meron_optimizer_kind;
enum {
  MERON_ADAMW = 0, /* Loshchilov and Hutter, arXiv 1711.05101 */
  MERON_OPTIMIZER_KIND_FORCE_32_BITS = 0x7FFFFFFF
};

/* How an optimizer updates. */
typedef struct {
  uint32_t struct_size; /* sizeof(meron_optimizer_options) */
  meron_optimizer_kind kind;
  double learning_rate; /* >= 0; default 1e-3 */
  double beta1;         /* 0 <= beta1 < 1; default 0.9 */
  double beta2;         /* 0 <= beta2 < 1; default 0.999 */
  double epsilon;       /* > 0; default 1e-8 */
  double weight_decay;  /* >= 0; default 0.01 */
  double max_norm;      /* gradients are scaled to at most this global 2-norm; 0: no clipping */
} meron_optimizer_options;

/* Initial value of a meron_optimizer_options. */
#define MERON_OPTIMIZER_OPTIONS_INIT \
  { (uint32_t)sizeof(meron_optimizer_options), MERON_ADAMW, 1e-3, 0.9, 0.999, 1e-8, 0.01, 0.0 }

/**
 * Fills the first `struct_size` bytes of *options with the initial value (for languages without
 * macros).
 * Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT.
 */
MERON_API MERON_NODISCARD meron_status meron_optimizer_options_init(
    meron_optimizer_options *options, size_t struct_size, meron_error **err);

/**
 * Makes an optimizer and its states (zero) for the trainable params of some units: f32 moments, and
 * an f32 master copy where the params have 16 bits. Collective over the units' group.
 * @param options  NULL for the defaults.
 * Ownership: the caller releases *out. Blocks: never. Threads: any.
 * Errors: MERON_E_ARGUMENT (a value out of range, no trainable param), MERON_E_DUPLICATE (a unit
 * twice, or in an optimizer already), MERON_E_NO_MEMORY, MERON_E_HANDLE, MERON_E_STALE, -3xx.
 */
MERON_API MERON_NODISCARD meron_status
meron_optimizer_create(meron_optimizer *out, const meron_unit *units, size_t count,
                       const meron_optimizer_options *options, meron_error **err);

/**
 * Sets the learning rate of the next steps; the same on all ranks (it is part of the step's
 * fingerprint).
 * Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE.
 */
MERON_API MERON_NODISCARD meron_status meron_optimizer_set_learning_rate(meron_optimizer optimizer,
                                                                         double learning_rate,
                                                                         meron_error **err);

/**
 * Begins a step: global gradient norm (exact, so equal for every number of ranks), clipping, update
 * of this rank's parts, publication of the next version. Needs the reduced gradient of every unit,
 * and no lease on any of them on this rank. Collective over the units' group.
 * @param out  receives the future.
 * Ownership: the caller releases *out. Blocks: never. Threads: any. Errors: MERON_E_STATE (names
 * the unit that is leased or not reduced), MERON_E_HANDLE, MERON_E_STALE, -3xx; from the wait:
 * MERON_E_NONFINITE on all ranks when the norm is not finite: nothing was changed, the gradients
 * are discarded.
 */
MERON_API MERON_NODISCARD meron_status meron_optimizer_step_begin(meron_future *out,
                                                                  meron_optimizer optimizer,
                                                                  meron_error **err);

/* What is known about an optimizer. */
typedef struct {
  uint32_t struct_size; /* sizeof(meron_optimizer_info), set by the caller */
  uint32_t reserved_0;  /* 0 */
  uint64_t steps;       /* taken so far */
  double norm;          /* global 2-norm of the last step's gradients, before clipping */
  double learning_rate;
} meron_optimizer_info;

/**
 * Reads what is known about an optimizer.
 * @param out  struct_size set by the caller.
 * Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE,
 * MERON_E_FORKED.
 */
MERON_API MERON_NODISCARD meron_status meron_optimizer_get_info(meron_optimizer_info *out,
                                                                meron_optimizer optimizer,
                                                                meron_error **err);

/* Which state of an optimizer. */
typedef int32_t meron_optimizer_state;
enum {
  MERON_STATE_MASTER = 0,     /* f32 values; the param itself where that is f32 */
  MERON_STATE_EXP_AVG = 1,    /* first moment */
  MERON_STATE_EXP_AVG_SQ = 2, /* second moment */
  MERON_OPTIMIZER_STATE_FORCE_32_BITS = 0x7FFFFFFF
};

/**
 * This rank's part of a state of `param`, f32. Writable, but for a master that is the param itself
 * (write that through an update).
 * Ownership: borrowed until the next step or meron_optimizer_release. Blocks: never. Threads: any,
 * not during a step. Errors: MERON_E_ARGUMENT (not a param of this optimizer, unknown state),
 * MERON_E_HANDLE, MERON_E_STALE.
 */
MERON_API MERON_NODISCARD meron_status meron_optimizer_state_view(meron_view *out,
                                                                  meron_optimizer optimizer,
                                                                  meron_param param,
                                                                  meron_optimizer_state state,
                                                                  meron_error **err);

/**
 * Releases the optimizer and its states. A step under way keeps them until it has ended.
 * Blocks: never. Threads: any, also a finalizer's. Errors: MERON_E_HANDLE, MERON_E_STALE.
 */
MERON_API meron_status meron_optimizer_release(meron_optimizer optimizer, meron_error **err);

MERON_END_DECLS

#endif /* MERON_OPTIMIZER_H */

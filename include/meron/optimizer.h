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
  MERON_OPTIMIZER_ADAMW = 0,   /* Loshchilov and Hutter, arXiv 1711.05101 */
  MERON_OPTIMIZER_ADAM = 1,    /* Kingma and Ba, arXiv 1412.6980; weight decay by the gradient */
  MERON_OPTIMIZER_ADAGRAD = 2, /* Duchi, Hazan and Singer, JMLR 12 (2011); weight decay as Adam */
  MERON_OPTIMIZER_LION = 3,    /* Chen et al., arXiv 2302.06675; its authors take beta2 = 0.99 */
  MERON_OPTIMIZER_SGD = 4,     /* as torch.optim.SGD; beta1 is the momentum, weight decay as Adam */
};

/*
 * Options of an optimizer. Start from the INIT macro of the rule, such as MERON_OPTIMIZER_SGD_INIT:
 * each rule has its own defaults, and a struct with the defaults of another rule is refused.
 */
typedef struct {
  uint32_t struct_size; /* sizeof(meron_optimizer_options) */
  meron_optimizer_kind kind;
  double learning_rate; /* >= 0 */
  double beta1;         /* 0 <= beta1 < 1. SGD: the momentum; 0 keeps no state */
  double beta2;         /* 0 <= beta2 < 1 */
  double epsilon;       /* > 0 */
  double weight_decay;  /* >= 0 */
  double max_norm;      /* gradients are scaled to at most this 2-norm, of all gradients of the
                           optimizer together, as meron_gradient_clip does; 0: no clipping */
  double dampening;     /* SGD: 0 <= dampening < 1; else 0 */
  uint32_t nesterov;    /* SGD with a momentum and no dampening: 1 for Nesterov's; else 0 */
  uint32_t defaults_of; /* 1 + the kind whose defaults these are; set by the INIT macros and
                           meron_optimizer_rule_init, not by the caller */
  double lr_decay; /* Adagrad: >= 0; step t has the rate learning_rate / (1 + (t - 1) lr_decay) */
} meron_optimizer_options;

/* Defaults of AdamW: a meron_optimizer_options. */
#define MERON_OPTIMIZER_ADAMW_INIT                                                            \
  {                                                                                           \
    MERON_SIZEOF_U32(meron_optimizer_options), MERON_OPTIMIZER_ADAMW, 1e-3, 0.9, 0.999, 1e-8, \
        0.01, 0.0, 0.0, 0, 1, 0.0                                                             \
  }

/* Defaults of Adam. */
#define MERON_OPTIMIZER_ADAM_INIT                                                                 \
  {                                                                                               \
    MERON_SIZEOF_U32(meron_optimizer_options), MERON_OPTIMIZER_ADAM, 1e-3, 0.9, 0.999, 1e-8, 0.0, \
        0.0, 0.0, 0, 2, 0.0                                                                       \
  }

/* Defaults of Adagrad. */
#define MERON_OPTIMIZER_ADAGRAD_INIT                                                             \
  {                                                                                              \
    MERON_SIZEOF_U32(meron_optimizer_options), MERON_OPTIMIZER_ADAGRAD, 1e-2, 0.9, 0.999, 1e-10, \
        0.0, 0.0, 0.0, 0, 3, 0.0                                                                 \
  }

/* Defaults of Lion. */
#define MERON_OPTIMIZER_LION_INIT                                                                \
  {                                                                                              \
    MERON_SIZEOF_U32(meron_optimizer_options), MERON_OPTIMIZER_LION, 1e-4, 0.9, 0.99, 1e-8, 0.0, \
        0.0, 0.0, 0, 4, 0.0                                                                      \
  }

/* Defaults of SGD: no momentum. */
#define MERON_OPTIMIZER_SGD_INIT                                                                 \
  {                                                                                              \
    MERON_SIZEOF_U32(meron_optimizer_options), MERON_OPTIMIZER_SGD, 1e-3, 0.0, 0.999, 1e-8, 0.0, \
        0.0, 0.0, 0, 5, 0.0                                                                      \
  }

/* Initial value of a meron_optimizer_options: MERON_OPTIMIZER_ADAMW_INIT. */
#define MERON_OPTIMIZER_OPTIONS_INIT                                                          \
  {                                                                                           \
    MERON_SIZEOF_U32(meron_optimizer_options), MERON_OPTIMIZER_ADAMW, 1e-3, 0.9, 0.999, 1e-8, \
        0.01, 0.0, 0.0, 0, 1, 0.0                                                             \
  }

/**
 * Fills the first `struct_size` bytes of *options with the defaults of a rule, as its INIT macro
 * does (for languages without macros).
 * Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT.
 */
MERON_API MERON_NODISCARD meron_status meron_optimizer_rule_init(meron_optimizer_options *options,
                                                                 size_t struct_size,
                                                                 meron_optimizer_kind kind,
                                                                 meron_error **err);

/**
 * Creates an optimizer and its states (zero) for the trainable params of some units: the states of
 * the rule, in the plan's dtype and on its tier, and an f32 master copy if the params have 16 bits.
 * A master begins with the param's value at this call, and later updates write it too, so initial
 * values may be written before or after. States on tier nvme are written once here, so that steps
 * only overwrite existing data; if that takes long, the log reports the progress. Collective over
 * the units' group.
 * @param units    `count` units of one group. Units whose params are all frozen are passed over,
 *                 here and in the steps; a step needs the gradients of all others.
 * @param options  NULL for AdamW with its defaults; else a struct from the INIT macro of its kind.
 * Ownership: the caller releases *out. Blocks: as meron_barrier_begin; while a save copies states,
 * without a deadline; also on this rank's drive if states are on nvme. Threads: any. Errors:
 * MERON_E_ARGUMENT (a value out of range, no unit with a trainable param), MERON_E_DUPLICATE (a
 * unit twice, or in an optimizer already), MERON_E_STATE (a unit is updated), MERON_E_HANDLE,
 * MERON_E_STALE, -3xx. If this rank cannot hold the states, that breaks a group of several ranks:
 * MERON_E_NO_MEMORY, and of tier nvme MERON_E_ARGUMENT (an unusable folder), MERON_E_NOT_FOUND,
 * MERON_E_NO_SPACE, MERON_E_IO, MERON_E_TIMEOUT.
 */
MERON_API MERON_NODISCARD meron_status
meron_optimizer_create(meron_optimizer *out, const meron_unit *units, size_t count,
                       const meron_optimizer_options *options, meron_error **err);

/**
 * Sets the learning rate of the next steps for params of group 0; the same on all ranks (it is part
 * of the step's fingerprint). Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT,
 * MERON_E_HANDLE, MERON_E_STALE.
 */
MERON_API MERON_NODISCARD meron_status meron_optimizer_set_learning_rate(meron_optimizer optimizer,
                                                                         double learning_rate,
                                                                         meron_error **err);

/**
 * Sets max_norm of the next steps: larger gradients are scaled down to it, smaller ones stay; 0
 * does not clip. The same on all ranks (it is part of the step's fingerprint). Blocks: never.
 * Threads: any. Errors: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE.
 */
MERON_API MERON_NODISCARD meron_status meron_optimizer_set_max_norm(meron_optimizer optimizer,
                                                                    double max_norm,
                                                                    meron_error **err);

/*
 * Hyperparameters of the params of one group. The rule ignores those that it does not use. Start
 * from a group of the optimizer (meron_optimizer_get_group).
 */
typedef struct {
  uint32_t struct_size; /* sizeof(meron_optimizer_group) */
  uint32_t defaults_of; /* as in meron_optimizer_options; meron_optimizer_get_group sets it,
                           too */
  double learning_rate; /* >= 0 */
  double beta1;         /* 0 <= beta1 < 1. SGD: the momentum, 0 in all groups or in none */
  double beta2;         /* 0 <= beta2 < 1 */
  double epsilon;       /* > 0 */
  double weight_decay;  /* >= 0 */
  double lr_decay;      /* Adagrad: >= 0; else 0 */
} meron_optimizer_group;

/* Initial value of a meron_optimizer_group, for an optimizer of AdamW. */
#define MERON_OPTIMIZER_GROUP_INIT \
  { MERON_SIZEOF_U32(meron_optimizer_group), 1, 1e-3, 0.9, 0.999, 1e-8, 0.01, 0.0 }

/**
 * Fills the first `struct_size` bytes of *group with the initial value, which is AdamW's (for
 * languages without macros).
 * Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT.
 */
MERON_API MERON_NODISCARD meron_status meron_optimizer_group_init(meron_optimizer_group *group,
                                                                  size_t struct_size,
                                                                  meron_error **err);

/**
 * Gives some params their own hyperparameters, for example no weight decay. All ranks must do the
 * same before the next step, because it is part of the step's fingerprint.
 * @param out     receives the group's number, 1, 2, ...; group 0 has the params of no other group.
 * @param params  `count` params that this optimizer trains, all of group 0.
 * @param group   copied.
 * Blocks: only while another thread of this rank begins an operation. Threads: any, not during a
 * step. Errors: MERON_E_ARGUMENT (a value out of range, or a group that does not start from one of
 * this optimizer's rule), MERON_E_DUPLICATE (a param is in a group already), MERON_E_STATE (a step
 * is pending), MERON_E_HANDLE, MERON_E_STALE.
 */
MERON_API MERON_NODISCARD meron_status
meron_optimizer_add_group(uint32_t *out, meron_optimizer optimizer, const meron_param *params,
                          size_t count, const meron_optimizer_group *group, meron_error **err);

/**
 * Sets the hyperparameters of a group for the next steps; the same on all ranks.
 * @param number  0, or a number from meron_optimizer_add_group.
 * Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT (no such group, or as
 * meron_optimizer_add_group), MERON_E_HANDLE, MERON_E_STALE.
 */
MERON_API MERON_NODISCARD meron_status meron_optimizer_set_group(meron_optimizer optimizer,
                                                                 uint32_t number,
                                                                 const meron_optimizer_group *group,
                                                                 meron_error **err);

/**
 * Reads the hyperparameters of a group.
 * @param out  struct_size set by the caller.
 * Ownership: *out is the caller's, a plain copy. Blocks: never. Threads: any. Errors:
 * MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
 */
MERON_API MERON_NODISCARD meron_status meron_optimizer_get_group(meron_optimizer_group *out,
                                                                 meron_optimizer optimizer,
                                                                 uint32_t number,
                                                                 meron_error **err);

/**
 * Begins a step: norm of all gradients of this optimizer (exact, so equal for every number of
 * ranks), clipping, update of this rank's shards, publication of the next version. Needs the
 * reduced gradient of every unit, and no lease on any of them on this rank: release gathers before,
 * also pending ones, and drop schedules. A gather may begin again when the step has ended here.
 * Collective over the units' group. States on tier nvme are read, updated and written at the same
 * time, piece by piece; nothing is written before the norm is known to be finite.
 * @param out  receives the future.
 * Ownership: the caller releases *out. Blocks: as meron_barrier_begin; the future waits for a save
 * that copies the states. Threads: any. Errors: MERON_E_STATE (names the unit that is leased or not
 * reduced; a step is pending; states are offloaded), MERON_E_HANDLE, MERON_E_STALE, -3xx. From the
 * wait: MERON_E_NONFINITE on all ranks if the norm is not finite, or if the step would make a state
 * infinite or a value too large for its dtype. Nothing was changed, the step does not count, and
 * the gradients are discarded, so that training can continue. Two tiers differ. On nvme, an
 * overflow that several steps have added up to is found only while it is written: then this error
 * breaks the group. On device, only gradients are looked at before the step: a later step whose
 * norm is not finite names a value of f16 that became infinite. MERON_E_IO and MERON_E_CORRUPT if a
 * drive failed or returned other bytes than were written: these break the group, so continue from a
 * checkpoint.
 */
MERON_API MERON_NODISCARD meron_status meron_optimizer_step_begin(meron_future *out,
                                                                  meron_optimizer optimizer,
                                                                  meron_error **err);

/**
 * Sets the number of steps that the optimizer and all of its params have taken, for an optimizer
 * that continues from a checkpoint, beside its states (meron_optimizer_write_state). Adam's bias
 * corrections, the first step of SGD with a momentum (which takes no average) and the random
 * rounding of states in 16 or 8 bits depend on it. All ranks set the same number, because the
 * fingerprint of the next step includes it. Changes nothing else.
 * @param steps  at most 2^53.
 * Blocks: never. Threads: any, not during a step. Errors: MERON_E_ARGUMENT, MERON_E_STATE (a step
 * is pending), MERON_E_HANDLE, MERON_E_STALE.
 */
MERON_API MERON_NODISCARD meron_status meron_optimizer_set_steps(meron_optimizer optimizer,
                                                                 uint64_t steps, meron_error **err);

/**
 * Makes the next steps skip some params: their values, states and counts of steps stay as they are,
 * like those of a torch.optim param whose gradient is None. Replaces the params of the call before.
 * All ranks give the same params before the next step, whose fingerprint includes them. Gradients
 * of skipped params still count in the norm. States in 8 bits are rounded anew if they share a
 * block with a param that is not skipped.
 * @param params  `count` params that this optimizer trains; NULL with a count of 0: no param is
 *                skipped.
 * Ownership: the array is copied. Blocks: never. Threads: any, not during a step. Errors:
 * MERON_E_ARGUMENT, MERON_E_STATE (a step is pending), MERON_E_HANDLE, MERON_E_STALE.
 */
MERON_API MERON_NODISCARD meron_status meron_optimizer_set_skipped(meron_optimizer optimizer,
                                                                   const meron_param *params,
                                                                   size_t count, meron_error **err);

/**
 * Reads the number of steps that a param has taken: those of the optimizer, without the steps that
 * skipped the param (meron_optimizer_set_skipped).
 * Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT (not a param of this optimizer),
 * MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
 */
MERON_API MERON_NODISCARD meron_status meron_optimizer_param_steps(uint64_t *out,
                                                                   meron_optimizer optimizer,
                                                                   meron_param param,
                                                                   meron_error **err);

/**
 * Sets the number of steps that one param has taken, for states that begin anew (0, beside
 * meron_optimizer_write_state of zeros) or come from elsewhere. All ranks set the same number,
 * because the fingerprint of the next step includes it. meron_optimizer_set_steps resets it.
 * @param steps  at most 2^53.
 * Blocks: never. Threads: any, not during a step. Errors: MERON_E_ARGUMENT (also for a param that
 * this optimizer does not train), MERON_E_STATE (a step is pending), MERON_E_HANDLE,
 * MERON_E_STALE.
 */
MERON_API MERON_NODISCARD meron_status meron_optimizer_set_param_steps(meron_optimizer optimizer,
                                                                       meron_param param,
                                                                       uint64_t steps,
                                                                       meron_error **err);

/* Information about an optimizer. */
typedef struct {
  uint32_t struct_size;     /* sizeof(meron_optimizer_info), as the INIT macro sets it */
  uint32_t reserved_0;      /* 0 */
  uint64_t steps;           /* taken so far, with those of meron_optimizer_set_steps and of a loaded
                               checkpoint; without steps that ended in MERON_E_NONFINITE */
  double norm;              /* 2-norm of all gradients of the last step, before clipping */
  double learning_rate;     /* of group 0 */
  uint32_t groups;          /* of params, at least 1 */
  uint32_t states;          /* of the rule per element, besides the master */
  uint64_t nvme_bytes;      /* of this rank's states on tier nvme */
  uint64_t offloaded_bytes; /* of the states that meron_optimizer_offload has moved to a drive */
} meron_optimizer_info;

/* A meron_optimizer_info for the library to fill. */
#define MERON_OPTIMIZER_INFO_INIT \
  { MERON_SIZEOF_U32(meron_optimizer_info), 0, 0, 0.0, 0.0, 0, 0, 0, 0 }

/**
 * Reads the information about an optimizer.
 * @param out  struct_size set by the caller.
 * Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE,
 * MERON_E_FORKED.
 */
MERON_API MERON_NODISCARD meron_status meron_optimizer_get_info(meron_optimizer_info *out,
                                                                meron_optimizer optimizer,
                                                                meron_error **err);

/* A state of an optimizer. */
typedef int32_t meron_optimizer_state;
enum {
  MERON_OPTIMIZER_STATE_MASTER = 0,     /* f32 values; the param itself if that is f32 */
  MERON_OPTIMIZER_STATE_EXP_AVG = 1,    /* average of the gradients; Lion's, and SGD's momentum */
  MERON_OPTIMIZER_STATE_EXP_AVG_SQ = 2, /* average of their squares; Adagrad's sum of them */
};

/**
 * This rank's shard of a state of `param`, if the state is in memory of the host in f32. Writable,
 * except for a master that is the param itself: that is mapped read-only (write it through an
 * update). Ownership: borrowed until the next step, meron_optimizer_offload or
 * meron_optimizer_release. Blocks: never. Threads: any, not during a step. Errors: MERON_E_ARGUMENT
 * (not a param of this optimizer, a state that the rule does not keep), MERON_E_STATE (the states
 * are offloaded), MERON_E_UNSUPPORTED (it is on nvme or a device, or in 16 or 8 bits: use
 * meron_optimizer_read_state), MERON_E_HANDLE, MERON_E_STALE.
 */
MERON_API MERON_NODISCARD meron_status meron_optimizer_state_view(meron_view *out,
                                                                  meron_optimizer optimizer,
                                                                  meron_param param,
                                                                  meron_optimizer_state state,
                                                                  meron_error **err);

/**
 * Copies this rank's shard of a state of `param` in f32, from any tier and dtype.
 * @param out    `count` floats.
 * @param count  the param's shard_count (meron_param_get_info).
 * Blocks: while another thread of this rank begins an operation; if states are on nvme, on this
 * rank's drive, and while a save copies states, without a deadline. Threads: any, not during a
 * step. Errors: MERON_E_ARGUMENT (as meron_optimizer_state_view, or another count), MERON_E_STATE
 * (a step is pending, the states are offloaded), MERON_E_IO, MERON_E_CORRUPT, MERON_E_HANDLE,
 * MERON_E_STALE.
 */
MERON_API MERON_NODISCARD meron_status meron_optimizer_read_state(float *out, uint64_t count,
                                                                  meron_optimizer optimizer,
                                                                  meron_param param,
                                                                  meron_optimizer_state state,
                                                                  meron_error **err);

/**
 * Replaces this rank's shard of a state of `param`, from f32; states of 16 or 8 bits are rounded to
 * nearest.
 * @param data   `count` floats, only read.
 * @param count  the param's shard_count.
 * Blocks: as meron_optimizer_read_state, and while a save copies states of any tier. Threads: any,
 * not during a step. Errors: as meron_optimizer_read_state, MERON_E_ARGUMENT also for a master that
 * is the param itself (write that through an update).
 */
MERON_API MERON_NODISCARD meron_status meron_optimizer_write_state(
    meron_optimizer optimizer, meron_param param, meron_optimizer_state state, const float *data,
    uint64_t count, meron_error **err);

/**
 * Moves this rank's states in memory, including the f32 master, to this rank's file on a drive, and
 * frees their memory, for a phase that needs it for something else, like DeepSpeed's
 * offload_states. Values stay usable. Until meron_optimizer_reload, steps, updates, saves, loads
 * and reads and writes of states return MERON_E_STATE.
 * @param folder  on a drive; NULL for the plan's nvme.path, or for the folder that already has this
 *                rank's file.
 * Blocks: on this rank's drive, and meanwhile other calls of this rank that begin an operation;
 * while a save copies states, without a deadline; never on peers. Threads: any. An error changes
 * nothing. Errors: MERON_E_ARGUMENT (no folder, an unusable one), MERON_E_STATE (a step is pending,
 * they are offloaded already), MERON_E_UNSUPPORTED (they are on tier device), MERON_E_NO_SPACE,
 * MERON_E_IO, MERON_E_NOT_FOUND, MERON_E_TIMEOUT, MERON_E_HANDLE, MERON_E_STALE.
 */
MERON_API MERON_NODISCARD meron_status meron_optimizer_offload(meron_optimizer optimizer,
                                                               const char *folder,
                                                               meron_error **err);

/**
 * Restores the states that meron_optimizer_offload moved, bit for bit. Blocks: as
 * meron_optimizer_offload. Threads: any. After an error they are still offloaded. Errors:
 * MERON_E_STATE (they are not offloaded), MERON_E_NO_MEMORY, MERON_E_IO, MERON_E_CORRUPT (the drive
 * returned other bytes), MERON_E_TIMEOUT, MERON_E_HANDLE, MERON_E_STALE.
 */
MERON_API MERON_NODISCARD meron_status meron_optimizer_reload(meron_optimizer optimizer,
                                                              meron_error **err);

/**
 * Releases the optimizer and its states. A pending step keeps them until it has ended. Blocks: if
 * states are on nvme, until the writes of the last step have completed, at most 5 s; never on
 * peers. Threads: any, also a finalizer's. Errors: MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
 */
MERON_API meron_status meron_optimizer_release(meron_optimizer optimizer, meron_error **err);

MERON_END_DECLS

#endif /* MERON_OPTIMIZER_H */

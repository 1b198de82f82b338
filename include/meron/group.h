/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meron/group.h: groups of ranks, and the collectives on plain memory.
 *
 * Order rule: the ranks of a group begin their collectives on it in the same order. The library
 * checks this on every call by a fingerprint (operation, tensor, bytes, dtype, sequence number):
 * ranks that diverge get MERON_E_MISMATCH naming both calls. An error that breaks the group breaks
 * it on every rank, for good (see meron_status).
 */
#ifndef MERON_GROUP_H
#define MERON_GROUP_H

#include "meron/base.h"
#include "meron/context.h"

MERON_BEGIN_DECLS

/* A group. A value; 0 is null, which only meron_param_desc takes, for the world. */
typedef struct {
  uint64_t id;
} meron_group;

/* The operation that combines values. */
typedef int32_t meron_reduce_op;
enum {
  MERON_REDUCE_OP_SUM = 0,
  MERON_REDUCE_OP_MEAN = 1,
  MERON_REDUCE_OP_MAX = 2, /* of meron_all_reduce_begin alone, as the next one */
  MERON_REDUCE_OP_MIN = 3,
};

/**
 * The group of all ranks.
 * Ownership: the caller releases *out; the group itself lives as long as the context.
 * Blocks: never. Threads: any. Errors: as meron_context_rank.
 */
MERON_API MERON_NODISCARD meron_status meron_context_world(meron_group *out, meron_context context,
                                                           meron_error **err);

/**
 * Creates a group of some ranks. Collective over the world: every rank calls it with the same list;
 * ranks outside of the list get a null group.
 * @param ranks  `count` world ranks, each once, in the group's order.
 * Ownership: the caller releases *out. Blocks: as meron_barrier_begin; if the plan has parameters
 * on tier device, also until the ranks of the group have called it, because it connects their
 * devices. Threads: any. Errors: MERON_E_ARGUMENT (a rank beyond the world or twice),
 * MERON_E_UNSUPPORTED (more than 64 groups), MERON_E_VERSION (libraries of collectives that
 * differ), MERON_E_NO_MEMORY, -3xx. A lack of memory on one rank breaks the world, with
 * MERON_E_NO_MEMORY on all ranks: the error names the rank.
 */
MERON_API MERON_NODISCARD meron_status meron_group_create(meron_group *out, meron_context context,
                                                          const int32_t *ranks, size_t count,
                                                          meron_error **err);

/**
 * This rank's number in the group. Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT,
 * MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
 */
MERON_API MERON_NODISCARD meron_status meron_group_rank(int32_t *out, meron_group group,
                                                        meron_error **err);

/**
 * The number of ranks in the group.
 * Blocks: never. Threads: any. Errors: as meron_group_rank.
 */
MERON_API MERON_NODISCARD meron_status meron_group_size(int32_t *out, meron_group group,
                                                        meron_error **err);

/**
 * MERON_OK while the group works, else the error that broke it, of any class. So it decides, after
 * an error of another call, if the program can continue. Blocks: never; checks if peers are alive.
 * Threads: any. Errors: the one that broke the group, -3xx, as meron_group_rank.
 */
MERON_API MERON_NODISCARD meron_status meron_group_status(meron_group group, meron_error **err);

/**
 * Breaks the group on every rank: pending waits end with MERON_E_ABORTED, which contains `reason`.
 * @param reason  NULL or text for people, at most 200 bytes are kept.
 * Blocks: never. Threads: any. Errors: as meron_group_rank.
 */
MERON_API MERON_NODISCARD meron_status meron_group_abort(meron_group group, const char *reason,
                                                         meron_error **err);

/**
 * Begins a barrier: the future ends when every rank of the group has begun it.
 * @param out  receives the future.
 * Ownership: the caller releases *out. Blocks: if this rank is 1,024 calls ahead of a peer, until
 * that peer has followed, at most the deadline; and while another thread of this rank begins an
 * operation. Threads: any. Errors: as meron_group_rank, MERON_E_CANCELLED (nothing was begun),
 * -3xx.
 */
MERON_API MERON_NODISCARD meron_status meron_barrier_begin(meron_future *out, meron_group group,
                                                           meron_error **err);

/**
 * Begins a broadcast of `bytes` bytes from rank `root` of the group.
 * @param data  memory of the host, read on the root and written elsewhere.
 * Ownership: `data` must stay valid until the future has ended. Blocks: as meron_barrier_begin.
 * Threads: any. Errors: MERON_E_ARGUMENT, as meron_barrier_begin.
 */
MERON_API MERON_NODISCARD meron_status meron_broadcast_begin(meron_future *out, meron_group group,
                                                             void *data, size_t bytes, int32_t root,
                                                             meron_error **err);

/**
 * Begins an all-reduce of `count` elements in place. Values are combined in rank order, so that
 * every rank gets the same bits in every run. For small arrays (losses, metrics, counts): every
 * rank reads all peers' values. For gradients, use meron_reduce_begin.
 * @param data   memory of the host.
 * @param dtype  any; equal on all ranks, like `count` and `op`: ranks that differ get
 *               MERON_E_MISMATCH, which names both calls.
 * @param op     sum and mean are computed in f32, those of f64 in f64. A sum of i64 wraps around,
 *               as in NCCL; its mean is an error. max and min are NaN if a rank's value is NaN, as
 *               in PyTorch.
 * Ownership: `data` must stay valid until the future has ended. Blocks: as meron_barrier_begin.
 * Threads: any. Errors: MERON_E_ARGUMENT, as meron_barrier_begin.
 */
MERON_API MERON_NODISCARD meron_status meron_all_reduce_begin(meron_future *out, meron_group group,
                                                              void *data, size_t count,
                                                              meron_dtype dtype, meron_reduce_op op,
                                                              meron_error **err);

/**
 * Releases a group. Params and operations keep it while they need it. Blocks: never. Threads: any,
 * also a finalizer's. Errors: MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
 */
MERON_API meron_status meron_group_release(meron_group group, meron_error **err);

MERON_END_DECLS

#endif /* MERON_GROUP_H */

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meron/plan.h: the strategy as a table. It has the ranks, the dtype and the tier of each kind of
 * state (parameter, gradient, optimizer state). Pure data: creating, printing and predicting use no
 * device, file or peer.
 */
#ifndef MERON_PLAN_H
#define MERON_PLAN_H

#include "meron/base.h"

MERON_BEGIN_DECLS

/* A plan. A value; 0 is null. */
typedef struct {
  uint64_t id;
} meron_plan;

/**
 * Creates one of the named plans: "zero0" (everything replicated, as in DDP), "zero1" (optimizer
 * states sharded), "zero2" (gradients too), "zero3" (parameters too); for several nodes "mics(4)"
 * (zero3 within groups of 4 ranks, gradients synchronized between the groups at the accumulation
 * boundary), "hpz(4)" (zero3 with a secondary partition of the parameters in each group from
 * forward to backward) and "zeropp(4)" (the same, with parameters in int8 and gradients in int4
 * between groups). Without an argument, or with "node", a group is the ranks of a node. Follows
 * ZeRO (arXiv 1910.02054), MiCS (arXiv 2205.00119) and ZeRO++ (arXiv 2306.10209).
 * @param out   receives the plan.
 * @param name  NUL-terminated.
 * Ownership: the caller releases *out with meron_plan_release; a context keeps its own reference.
 * Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT for an unknown name (the message lists the
 * known ones).
 */
MERON_API MERON_NODISCARD meron_status meron_plan_preset(meron_plan *out, const char *name,
                                                         meron_error **err);

/**
 * Reads a plan from JSON. `{"preset": "zero2", "gradient": {"dtype": "f32"}}` starts from a preset;
 * docs/plan.md has every key.
 * @param out   receives the plan.
 * @param json  text of `bytes` bytes, UTF-8, need not end in NUL.
 * Ownership: as meron_plan_preset. Blocks: never. Threads: any.
 * Errors: MERON_E_PARSE (line and key), MERON_E_ARGUMENT, MERON_E_UNSUPPORTED.
 */
MERON_API MERON_NODISCARD meron_status meron_plan_parse(meron_plan *out, const char *json,
                                                        size_t bytes, meron_error **err);

/**
 * The plan as JSON that meron_plan_parse reads back to an equal plan.
 * Ownership: the caller frees *out with meron_string_free. Blocks: never. Threads: any.
 * Errors: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE.
 */
MERON_API MERON_NODISCARD meron_status meron_plan_json(char **out, meron_plan plan,
                                                       meron_error **err);

/**
 * The plan as a table for people, several lines.
 * Ownership: the caller frees *out with meron_string_free. Blocks: never. Threads: any.
 * Errors: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE.
 */
MERON_API MERON_NODISCARD meron_status meron_plan_table(char **out, meron_plan plan,
                                                        meron_error **err);

/* Workload of a step, for a prediction. */
typedef struct {
  uint32_t struct_size;             /* sizeof(meron_workload) */
  uint32_t ranks;                   /* world size, at least 1 */
  uint32_t micro_batches;           /* per optimizer step; default 1 */
  uint32_t gathers_per_micro_batch; /* of every unit; default 2: forward and backward */
  uint32_t ranks_per_node;          /* consecutive ranks that share memory; 0: all of them */
  uint32_t optimizer_states;        /* of the rule per element; default 2: AdamW */
  uint32_t reserved_0;              /* must be 0 */
} meron_workload;

/* Initial value of a meron_workload. */
#define MERON_WORKLOAD_INIT \
  { MERON_SIZEOF_U32(meron_workload), 1, 1, 2, 0, 2, 0 }

/**
 * Fills the first `struct_size` bytes of *workload with the initial value (for languages without
 * macros).
 * Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT.
 */
MERON_API MERON_NODISCARD meron_status meron_workload_init(meron_workload *workload,
                                                           size_t struct_size, meron_error **err);

/**
 * Predicts bytes per link and step and peak bytes per tier, per rank, as JSON.
 * If the ranks use codecs with which models train worse, the JSON has a list `warnings` of the
 * texts that a run logs, and the table ends with them.
 * @param out    receives the text.
 * @param model  JSON of `bytes` bytes: {"parameters": N, "layers": L, "dtype": "bf16"}, or
 *               {"units": [{"name": ..., "tensors": [{"name", "shape", "dtype"}]}]}.
 * @param table  0: JSON; 1: a table for people.
 * Ownership: the caller frees *out with meron_string_free. Blocks: never. Threads: any.
 * Errors: MERON_E_PARSE, MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE.
 */
MERON_API MERON_NODISCARD meron_status meron_plan_predict(char **out, meron_plan plan,
                                                          const char *model, size_t bytes,
                                                          const meron_workload *workload,
                                                          uint32_t table, meron_error **err);

/**
 * Releases a plan. A context that was opened with it keeps it.
 * Blocks: never. Threads: any, also a finalizer's. Errors: MERON_E_HANDLE, MERON_E_STALE.
 */
MERON_API meron_status meron_plan_release(meron_plan plan, meron_error **err);

MERON_END_DECLS

#endif /* MERON_PLAN_H */

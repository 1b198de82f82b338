/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meron/checkpoint.h: saves and loads the states of all units by all ranks together, and reads the
 * files.
 *
 * A checkpoint is a directory of safetensors files with a manifest (docs/checkpoint-format.md). It
 * contains values, f32 masters and optimizer states as ranges of named tensors, so it loads at any
 * number of ranks and under any plan. It is complete or does not exist, as with ByteCheckpoint
 * (NSDI 2025) and Orbax; each rank writes and reads its own shards. Models as Hugging Face
 * publishes them (safetensors, in one file or several with an index) are read like checkpoints of
 * values, and written by meron_checkpoint_export.
 *
 * Checkpoints of a folder that continue each other are a line. A save continues the line of the
 * checkpoint that its context saved or loaded last (of values alone, if it is in this folder). It
 * begins a line if there is none, or if the run went back: after a load, `step` is lower than that
 * of the loaded checkpoint, or the line has a later step already. So a run that starts anew in the
 * same folder has its own line. A load without a name takes the line that was saved to last, and of
 * it the checkpoint with the highest `step`; of equal steps, the one that was saved last.
 *
 * A load does with the program's objects, which exist before it:
 *
 *   restored   values, masters, optimizer states, the codec's feedback; counts of steps, of
 *              optimizers and params; hyperparameters of each group of an optimizer (learning rate,
 *              betas, epsilon, weight decay, lr_decay).
 *   compared   names and shapes of params; the number of optimizers, the rule and the number of
 *              groups of each. Pass optimizers in the order of the save, with their groups added.
 *   kept       the params of each group, skipped params, max_norm, dampening, Nesterov.
 *   offered    `step`, `extra` and the caller's own tensors: read them from the loaded checkpoint
 *              by meron_checkpoint_get_info, meron_checkpoint_text and, on ranks that see the
 *              files, meron_checkpoint_read.
 */
#ifndef MERON_CHECKPOINT_H
#define MERON_CHECKPOINT_H

#include "meron/base.h"
#include "meron/context.h"
#include "meron/optimizer.h"
#include "meron/param.h"

MERON_BEGIN_DECLS

/* A checkpoint that was opened or loaded. A value; 0 is null. */
typedef struct {
  uint64_t id;
} meron_checkpoint;

/* The caller's own tensor, or a range of one. */
typedef struct {
  uint32_t struct_size;  /* sizeof(meron_checkpoint_tensor) */
  uint32_t dims;         /* 0: a scalar; at most MERON_MAX_DIMS */
  const char *name;      /* 1 to 512 bytes of UTF-8 */
  const char *kind;      /* NULL: "extra". As docs/checkpoint-format.md lists them: "values" for a
                            buffer, "exp_avg", "state.KEY" for a state of an optimizer. A load
                            ignores "extra" and "state.KEY". A value that is no param must be
                            claimed there, or is unexpected */
  const char *dtype;     /* as safetensors names it: "F32", "BF16", "I64", ... */
  const uint64_t *shape; /* of the full tensor, row-major */
  uint64_t begin;        /* first element in `data` */
  uint64_t count;        /* elements in `data` */
  const void *data;      /* little endian, contiguous; may be NULL if count is 0 */
} meron_checkpoint_tensor;

/* Initial value of a meron_checkpoint_tensor. */
#define MERON_CHECKPOINT_TENSOR_INIT \
  { MERON_SIZEOF_U32(meron_checkpoint_tensor), 0, NULL, NULL, NULL, NULL, 0, 0, NULL }

/**
 * Fills the first `struct_size` bytes of *tensor with the initial value (for languages without
 * macros).
 * Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT.
 */
MERON_API MERON_NODISCARD meron_status meron_checkpoint_tensor_init(meron_checkpoint_tensor *tensor,
                                                                    size_t struct_size,
                                                                    meron_error **err);

/* ---- Saving ---- */

/* Options of a save: its content, and the fate of other checkpoints. */
typedef struct {
  uint32_t struct_size; /* sizeof(meron_checkpoint_save_options) */
  uint32_t values_only; /* 1: neither masters nor states of optimizers */
  uint32_t skip_frozen; /* 1: no frozen params */
  uint32_t overwrite;   /* 1: replaces a checkpoint of that name */
  uint64_t step;        /* the caller's count: of a line, the newest checkpoint has the highest */
  uint64_t keep;        /* complete checkpoints of the line that stay in the folder, with this one;
                           the newest with all states stays, too. 0: all */
  const char *extra; /* NULL, or the caller's own state: the text of a JSON object. That of rank 0
                        is saved */
  const meron_optimizer *optimizers; /* whose states and masters are saved; NULL: none */
  uint64_t optimizer_count;
  const meron_checkpoint_tensor *tensors; /* the caller's own; all ranks together pass each element
                                             of a tensor once. NULL: none of this rank */
  uint64_t tensor_count;
  const char *mapping; /* NULL, or a JSON object: "PARAM": "NAME" in the files, for states too;
                          "" leaves the param out */
  uint32_t per_node;   /* 1: each node has its own folder, such as one on a local disk. Ranks of a
                          node pass the same */
  uint32_t reserved_0; /* must be 0 */
  const meron_unit *units; /* whose states are saved, the same on all ranks, in any order; NULL: of
                              all units. They have all units of `optimizers` and all params of
                              `mapping`. Other units may be updated meanwhile */
  uint64_t unit_count;
} meron_checkpoint_save_options;

/* Initial value of a meron_checkpoint_save_options. */
#define MERON_CHECKPOINT_SAVE_OPTIONS_INIT                                                        \
  {                                                                                               \
    MERON_SIZEOF_U32(meron_checkpoint_save_options), 0, 0, 0, 0, 0, NULL, NULL, 0, NULL, 0, NULL, \
        0, 0, NULL, 0                                                                             \
  }

/**
 * Fills the first `struct_size` bytes of *options with the initial value (for languages without
 * macros).
 * Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT.
 */
MERON_API MERON_NODISCARD meron_status meron_checkpoint_save_options_init(
    meron_checkpoint_save_options *options, size_t struct_size, meron_error **err);

/**
 * Begins to save the states of all units, or of those in the options, as they are now, as `name` in
 * `folder`. Collective over the world. A thread of the engine copies them into bounded memory and
 * writes: gathers, forward and backward continue meanwhile. The save completes without a wait, also
 * if its future is released and the program only computes. (Over a custom transport between ranks
 * it progresses within calls on the context.) The futures of a step or an update of a unit wait
 * until the unit is copied, and so does a reduction with a codec that keeps feedback. Until all
 * units are copied, these calls wait: meron_optimizer_create, meron_optimizer_write_state,
 * meron_optimizer_read_state of tier nvme, meron_optimizer_offload, meron_optimizer_reload and
 * meron_unit_destroy. Views of states must not be written before that. The counts of steps and the
 * hyperparameters are those of the call. After a failure on any rank (a full disk) the future
 * returns the error on all ranks, and the error names that rank. If some rank has not waited for
 * the future, the begin of the next save returns the error once more, on all ranks, and begins
 * nothing; the save after that is a new one. A failure of the last save that no wait returned is
 * logged by meron_context_close. Existing checkpoints stay, and training can continue. One save at
 * a time: the next save, and a load, wait for the previous one. Closing the context waits for it
 * too. A save within an accumulation, or between a reduction and its step, has what the last update
 * left: gradients are not saved, and stay as they are. A codec's feedback that replicas' exchange
 * of such a gradient has changed is not saved either: it starts from zero after a load. A cancelled
 * wait for the future does not affect the save. A rank that makes no progress for twice the
 * context's timeout breaks the group (MERON_E_TIMEOUT); a slow rank does not, nor do steps that
 * wait for it. With `per_node` a node's folder has the files of its ranks, and the manifest of all
 * (docs/checkpoint-format.md): the checkpoint exists after every node has renamed its folder; a
 * name that only some nodes have, because a host died meanwhile, is free. A killed save never takes
 * its name: what it leaves is hidden, and the next save removes it. meron_checkpoint_cancel_save
 * cancels a save.
 * @param out      receives the future.
 * @param folder   a directory that all ranks see; created, with its parents, if it does not exist.
 *                 With `per_node`, a directory that all ranks of the node see.
 * @param name     one component of a path, not hidden, at most 200 bytes of UTF-8.
 * @param options  NULL for the values alone: without `optimizers`, a load restores no training.
 * Ownership: texts and arrays are copied; the memory at a tensor's `data` must not change until
 * meron_checkpoint_wait_copied; the caller releases *out. Blocks: as meron_barrier_begin; also
 * until the previous save has ended, without a deadline, and until reductions under way that change
 * feedback have ended. Threads: any. Errors: MERON_E_ARGUMENT, MERON_E_DUPLICATE (an optimizer or a
 * unit twice), MERON_E_PARSE (`mapping`), MERON_E_STATE (a unit is gathered, also by a schedule
 * that keeps it, or updated; a step is pending; states are offloaded), MERON_E_UNSUPPORTED (a unit
 * of some ranks only), MERON_E_HANDLE, MERON_E_STALE, -3xx, and any of the previous save. From the
 * future: MERON_E_ARGUMENT (an invalid name, `mapping`, tensors that do not fit each other),
 * MERON_E_PARSE (`extra` is no JSON object), MERON_E_DUPLICATE (the name is taken), MERON_E_STATE
 * (another process saves that name), MERON_E_NO_SPACE, MERON_E_IO, MERON_E_NO_MEMORY,
 * MERON_E_NOT_FOUND, MERON_E_TIMEOUT, MERON_E_CANCELLED (meron_checkpoint_cancel_save),
 * MERON_E_CLOSED, -3xx.
 */
MERON_API MERON_NODISCARD meron_status meron_checkpoint_save_begin(
    meron_future *out, meron_context context, const char *folder, const char *name,
    const meron_checkpoint_save_options *options, meron_error **err);

/**
 * Waits until the pending save has copied all its data: then the caller's tensors may change.
 * @param timeout_ns  nanoseconds; MERON_TIMEOUT_DEFAULT: without bound.
 * Returns MERON_OK also if no save is pending, or if it has failed; MERON_IN_PROGRESS if timeout_ns
 * passed first. Blocks: on the drive; by default without a deadline. Threads: any. Errors:
 * MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
 */
MERON_API MERON_NODISCARD meron_status meron_checkpoint_wait_copied(meron_context context,
                                                                    int64_t timeout_ns,
                                                                    meron_error **err);

/**
 * Cancels the pending save. Any rank may do so, without the others: all of them stop writing, and
 * the save's future ends on each with MERON_E_CANCELLED, whose peer is a rank that cancelled. If
 * all ranks have written their files by then, the save succeeds instead, on all of them. A
 * cancelled save leaves no files, also with `overwrite` and `keep`: earlier checkpoints stay as
 * they were. If a process is killed meanwhile, a hidden directory may remain (.saving-...), which
 * the next save removes. The next save does not report the cancelled one. It begins nothing and
 * waits for nothing: wait for the future. Returns MERON_OK also if no save is pending. Blocks:
 * never. Threads: any. Errors: MERON_E_HANDLE, MERON_E_STALE, MERON_E_CLOSED, MERON_E_FORKED.
 */
MERON_API MERON_NODISCARD meron_status meron_checkpoint_cancel_save(meron_context context,
                                                                    meron_error **err);

/* Progress of a save. */
typedef struct {
  uint32_t struct_size; /* sizeof(meron_checkpoint_progress), as the INIT macro sets it */
  uint32_t saving;      /* 1: a save is pending */
  uint64_t total;       /* bytes that this rank writes; 0: not known yet, or no save */
  uint64_t copied;      /* of these, copied from the units */
  uint64_t written;     /* of these, written to files */
} meron_checkpoint_progress;

/* A meron_checkpoint_progress for the library to fill. */
#define MERON_CHECKPOINT_PROGRESS_INIT \
  { MERON_SIZEOF_U32(meron_checkpoint_progress), 0, 0, 0, 0 }

/**
 * Reads the progress of the pending save, or of the last one.
 * @param out  struct_size set by the caller.
 * Ownership: the caller's. Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT, MERON_E_HANDLE,
 * MERON_E_STALE, MERON_E_FORKED.
 */
MERON_API MERON_NODISCARD meron_status meron_checkpoint_get_progress(meron_checkpoint_progress *out,
                                                                     meron_context context,
                                                                     meron_error **err);

/* Options of a write without a context, by one process. */
typedef struct {
  uint32_t struct_size;   /* sizeof(meron_checkpoint_write_options) */
  uint32_t overwrite;     /* 1: replaces a checkpoint of that name */
  uint64_t step;          /* the caller's count */
  const char *extra;      /* NULL, or the text of a JSON object */
  const char *optimizers; /* NULL, or the manifest's list of them, a JSON array */
  const meron_checkpoint_tensor *tensors;
  uint64_t tensor_count;
} meron_checkpoint_write_options;

/* Initial value of a meron_checkpoint_write_options. */
#define MERON_CHECKPOINT_WRITE_OPTIONS_INIT \
  { MERON_SIZEOF_U32(meron_checkpoint_write_options), 0, 0, NULL, NULL, NULL, 0 }

/**
 * Fills the first `struct_size` bytes of *options with the initial value (for languages without
 * macros).
 * Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT.
 */
MERON_API MERON_NODISCARD meron_status meron_checkpoint_write_options_init(
    meron_checkpoint_write_options *options, size_t struct_size, meron_error **err);

/**
 * Writes tensors as a checkpoint of one rank, for importers of other formats. `data` is read once
 * and in order, so it may be mapped files.
 * @param folder, name  as meron_checkpoint_save_begin.
 * Ownership: everything is only read, during the call. Blocks: on the drive. Threads: any.
 * Errors: MERON_E_ARGUMENT, MERON_E_PARSE (`extra`, `optimizers`), MERON_E_DUPLICATE,
 * MERON_E_STATE, MERON_E_NO_SPACE, MERON_E_IO, MERON_E_TIMEOUT.
 */
MERON_API MERON_NODISCARD meron_status
meron_checkpoint_write(const char *folder, const char *name,
                       const meron_checkpoint_write_options *options, meron_error **err);

/* ---- Loading ---- */

/* Options of a load. */
typedef struct {
  uint32_t struct_size; /* sizeof(meron_checkpoint_load_options) */
  uint32_t lenient;     /* 1: ignore params and tensors that the other side lacks */
  uint32_t
      values_only;     /* 1: values, and masters computed from them; optimizers keep their states */
  uint32_t rank0_only; /* 1: only rank 0 sees the files, and sends each rank its shards */
  const meron_optimizer *optimizers; /* as passed to the save; NULL: none, which is an error if the
                                        checkpoint has some, unless `values_only` is 1 */
  uint64_t optimizer_count;
  const char *mapping; /* NULL, or a JSON object: "PARAM": "TENSOR", or "PARAM": ["TENSOR", ...],
                          one after the other along the first dimension; others by their name */
  const char *claimed; /* NULL, or names of tensors of kind "values" that are no params, with line
                          breaks between them: they must exist, and the caller reads them */
  uint32_t per_node;   /* 1: each node has its own folder: one rank per node reads the node's files,
                          and sends each rank its shards */
  uint32_t reserved_0; /* must be 0 */
  const meron_unit *units; /* that are loaded, the same on all ranks, in any order; NULL: all. They
                              have all units of `optimizers`. Other units stay as they are, and
                              their tensors in the checkpoint are not unexpected */
  uint64_t unit_count;
} meron_checkpoint_load_options;

/* Initial value of a meron_checkpoint_load_options. */
#define MERON_CHECKPOINT_LOAD_OPTIONS_INIT \
  { MERON_SIZEOF_U32(meron_checkpoint_load_options), 0, 0, 0, NULL, 0, NULL, NULL, 0, 0, NULL, 0 }

/**
 * Fills the first `struct_size` bytes of *options with the initial value (for languages without
 * macros).
 * Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT.
 */
MERON_API MERON_NODISCARD meron_status meron_checkpoint_load_options_init(
    meron_checkpoint_load_options *options, size_t struct_size, meron_error **err);

/**
 * Loads a checkpoint into all units, or those in the options, and into their optimizers: see the
 * top of checkpoint.h. Collective over the world. Before anything changes, all ranks have compared
 * names, shapes and optimizers, and opened the files: such an error is one on all ranks and changes
 * nothing, so that a program can begin anew after MERON_E_NOT_FOUND. A later error, also a wait
 * that should_stop ended (MERON_E_ABORTED), is an error on all ranks and breaks the group, because
 * states are of two checkpoints. When it ends on one rank, no rank reads the files any more. With
 * `per_node` the newest checkpoint is the newest that has all its files in the nodes' folders
 * together; the numbers of nodes and ranks may differ from those at the save, and a node may have
 * the files of several.
 * @param out      receives the loaded checkpoint.
 * @param folder   of checkpoints, or one of them; or a model as Hugging Face publishes it, a
 *                 directory or one file, with `values_only`.
 * @param name     NULL for the newest complete one of the line that was saved to last. Incomplete
 *                 ones are passed over, which the log says; a damaged one that may be newer is an
 *                 error.
 * @param options  NULL for a checkpoint that was saved without optimizers.
 * Ownership: the caller releases *out. Blocks: until a pending save has ended, without a deadline;
 * on the drive and on all ranks; other threads of this rank that begin an operation wait. A rank
 * that makes no progress for twice the context's timeout ends the load (MERON_E_TIMEOUT, which
 * names it); raise the timeout for such slow drives. Threads: any. Errors: MERON_E_NOT_FOUND (the
 * folder or the name does not exist, or no checkpoint in it is complete), MERON_E_CORRUPT (names
 * tensor, file and offset), MERON_E_PARSE (`mapping`, a manifest), MERON_E_VERSION (of a newer
 * version), MERON_E_ARGUMENT (it does not fit: the message lists missing, unexpected and different
 * shapes), MERON_E_DUPLICATE, MERON_E_STATE and MERON_E_UNSUPPORTED as meron_checkpoint_save_begin,
 * MERON_E_STATE also for a gradient in another state than empty, MERON_E_IO, MERON_E_NO_MEMORY,
 * MERON_E_AUTH (its manifest is a symbolic link; links of a Hugging Face model are followed),
 * MERON_E_HANDLE, MERON_E_STALE, -3xx.
 */
MERON_API MERON_NODISCARD meron_status meron_checkpoint_load(
    meron_checkpoint *out, meron_context context, const char *folder, const char *name,
    const meron_checkpoint_load_options *options, meron_error **err);

/* ---- Reading without a context ---- */

/**
 * Opens a checkpoint, or a model as Hugging Face publishes it, to inspect it and to read tensors.
 * @param out            receives the checkpoint.
 * @param folder, name   as meron_checkpoint_load.
 * Ownership: the caller releases *out. Blocks: on the drive. Threads: any.
 * Errors: MERON_E_NOT_FOUND, MERON_E_CORRUPT, MERON_E_PARSE, MERON_E_VERSION, MERON_E_ARGUMENT,
 * MERON_E_AUTH (its manifest is a symbolic link), MERON_E_IO, MERON_E_NO_MEMORY.
 */
MERON_API MERON_NODISCARD meron_status meron_checkpoint_open(meron_checkpoint *out,
                                                             const char *folder, const char *name,
                                                             meron_error **err);

/**
 * Lists the complete checkpoints in a folder. Incomplete and damaged ones, links, and everything
 * that is no checkpoint are left out.
 * @param out     receives JSON: an array of objects, the newest first, in the order in which a load
 *                chooses. Each has "name", "step" (the caller's count), "world" (ranks that saved
 *                it), "bytes" (of its files), "created" (UTC, such as "2026-11-28T19:00:00Z"), and
 *                "whole": false if params, states or units were left out.
 * @param folder  a directory of checkpoints.
 * Ownership: the caller frees *out with meron_string_free. Blocks: on the drive. Threads: any.
 * Errors: MERON_E_ARGUMENT, MERON_E_NOT_FOUND (no such folder), MERON_E_IO, MERON_E_NO_MEMORY.
 */
MERON_API MERON_NODISCARD meron_status meron_checkpoint_list(char **out, const char *folder,
                                                             meron_error **err);

/**
 * Removes a checkpoint, complete or not, with all that is in its directory. It loses its name
 * first: if the process is killed or the host loses power, the checkpoint is there as before or
 * gone, and the next save removes what remains. Any one process may call it, beside a job that
 * saves to the folder; ranks need not agree. If each node has its own folder, remove it in each.
 * @param folder  a directory of checkpoints.
 * @param name    of the checkpoint. It may be the newest: a load then takes the one before.
 * Blocks: on the drive; at most half a minute while a save begins or ends in the folder. Threads:
 * any. Errors: MERON_E_ARGUMENT (an invalid name; it is no checkpoint, and stays),
 * MERON_E_NOT_FOUND, MERON_E_AUTH (the name is a symbolic link), MERON_E_STATE (a save of that name
 * is pending, or a process reads the checkpoint or has not released a meron_checkpoint of it; file
 * systems without locks, such as some over a network, cannot tell), MERON_E_PARSE, MERON_E_CORRUPT
 * and MERON_E_VERSION (its manifest cannot be read: remove it by hand), MERON_E_IO,
 * MERON_E_TIMEOUT.
 */
MERON_API MERON_NODISCARD meron_status meron_checkpoint_remove(const char *folder, const char *name,
                                                               meron_error **err);

/* Information about a checkpoint. */
typedef struct {
  uint32_t struct_size; /* sizeof(meron_checkpoint_info), as the INIT macro sets it */
  uint32_t world;       /* ranks that saved it */
  uint64_t step;        /* the caller's count */
  uint64_t bytes;       /* of its files */
  uint64_t tensors;     /* in the checkpoint */
  uint64_t bytes_read;  /* of its files, by this rank, so far */
  uint64_t missing;     /* states that it lacks; the load did not change them */
  uint64_t unexpected;  /* tensors that no unit has */
} meron_checkpoint_info;

/* A meron_checkpoint_info for the library to fill. */
#define MERON_CHECKPOINT_INFO_INIT \
  { MERON_SIZEOF_U32(meron_checkpoint_info), 0, 0, 0, 0, 0, 0, 0 }

/**
 * Reads the information about a checkpoint.
 * @param out  struct_size set by the caller.
 * Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE,
 * MERON_E_FORKED.
 */
MERON_API MERON_NODISCARD meron_status meron_checkpoint_get_info(meron_checkpoint_info *out,
                                                                 meron_checkpoint checkpoint,
                                                                 meron_error **err);

/* A text of a checkpoint. */
typedef int32_t meron_checkpoint_text_kind;
enum {
  MERON_CHECKPOINT_TEXT_PATH = 0,        /* of its directory */
  MERON_CHECKPOINT_TEXT_EXTRA = 1,       /* the caller's own state: a JSON object */
  MERON_CHECKPOINT_TEXT_MISSING = 2,     /* names of states, each with a line break */
  MERON_CHECKPOINT_TEXT_UNEXPECTED = 3,  /* names of tensors, each with a line break */
  MERON_CHECKPOINT_TEXT_MANIFEST = 4,    /* all of its manifest: a JSON object, by
                                       docs/checkpoint-format.md. Its array "tensors" has "name",
                                       "kind", "dtype" and "shape" of each tensor, "optimizers" the
                                       rules and counts. Of a model of Hugging Face: one that
                                       describes it, without checksums */
  MERON_CHECKPOINT_TEXT_PASSED_OVER = 5, /* of one that was opened as the newest: the incomplete
                                       ones that were passed over, and why, and the newest one of
                                       another line if its step is higher; "" if there are none */
};

/**
 * A text of a checkpoint.
 * @param out  receives it.
 * Ownership: borrowed from the checkpoint. Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT,
 * MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
 */
MERON_API MERON_NODISCARD meron_status meron_checkpoint_text(const char **out,
                                                             meron_checkpoint checkpoint,
                                                             meron_checkpoint_text_kind kind,
                                                             meron_error **err);

/**
 * Reads elements of a tensor in the files' dtype, after a comparison of their checksums. Local: no
 * other rank takes part.
 * @param data   receives `count` elements.
 * @param bytes  of `data`: must be `count` times the size of an element of the tensor's dtype.
 * @param kind   NULL: "values".
 * @param begin  first element, row-major.
 * Ownership: the caller owns `data`. Blocks: on the drive. Threads: any; one at a time reads.
 * Errors: MERON_E_NOT_FOUND (no such tensor, a file is gone), MERON_E_ARGUMENT (outside of the
 * tensor), MERON_E_CORRUPT, MERON_E_IO, MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
 */
MERON_API MERON_NODISCARD meron_status meron_checkpoint_read(void *data, uint64_t bytes,
                                                             meron_checkpoint checkpoint,
                                                             const char *kind, const char *name,
                                                             uint64_t begin, uint64_t count,
                                                             meron_error **err);

/**
 * Releases a checkpoint; loaded states stay. Blocks: never. Threads: any, also a finalizer's.
 * Errors: MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
 */
MERON_API meron_status meron_checkpoint_release(meron_checkpoint checkpoint, meron_error **err);

/* ---- Export of weights ---- */

/* Options of an export. */
typedef struct {
  uint32_t struct_size;    /* sizeof(meron_checkpoint_export_options) */
  meron_dtype dtype;       /* of the floating-point values in the files, if keep_dtype is 0 */
  uint32_t keep_dtype;     /* 1, the initial value: each param's own dtype; `dtype` is ignored */
  uint32_t overwrite;      /* 1: replaces an existing model */
  uint64_t max_file_bytes; /* of a file's tensors: the next file begins before they would exceed it,
                              and a larger tensor has its own file; 0: 5 GB */
  const char *mapping;     /* NULL, or a JSON object: "PARAM": "NAME" in the files; "" leaves the
                              param out */
  const meron_checkpoint_tensor *tensors; /* the caller's own of kind "values", unsharded (buffers);
                                             those of rank 0 count. NULL: none */
  uint64_t tensor_count;
} meron_checkpoint_export_options;

/* Initial value of a meron_checkpoint_export_options. */
#define MERON_CHECKPOINT_EXPORT_OPTIONS_INIT \
  { MERON_SIZEOF_U32(meron_checkpoint_export_options), MERON_F32, 1, 0, 0, NULL, NULL, 0 }

/**
 * Fills the first `struct_size` bytes of *options with the initial value (for languages without
 * macros).
 * Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT.
 */
MERON_API MERON_NODISCARD meron_status meron_checkpoint_export_options_init(
    meron_checkpoint_export_options *options, size_t struct_size, meron_error **err);

/**
 * Writes the values of all units as Hugging Face publishes models: model.safetensors, or several
 * files and model.safetensors.index.json. Collective over the world; each rank writes its own shard
 * of each tensor in place, so nothing is gathered. If a param has an f32 master and its own dtype
 * is not the written one, the master is the source: MERON_F32 writes the masters. A tensor that
 * layers share is one param and written once. A unit whose params the mapping leaves out may be in
 * use. At every moment, also if a rank is killed, the folder has the former model or the new one.
 * Its other files are unchanged, and the next export removes the files of a killed one. NaNs are
 * written as they are.
 * @param folder   a directory that all ranks see; created if it does not exist.
 * @param options  NULL for the initial value.
 * Ownership: everything is only read, during the call. Blocks: until a pending save has ended, on
 * the drive and on all ranks, without a deadline; other threads of this rank that begin an
 * operation wait. Threads: any. Errors: MERON_E_ARGUMENT and MERON_E_PARSE (the mapping or a
 * tensor, two tensors of one name, nothing to export), MERON_E_DUPLICATE (a model exists),
 * MERON_E_STATE (another export to the folder is pending; and as meron_checkpoint_save_begin),
 * MERON_E_UNSUPPORTED as that, MERON_E_NO_SPACE, MERON_E_IO, MERON_E_TIMEOUT, MERON_E_HANDLE,
 * MERON_E_STALE, -3xx.
 */
MERON_API MERON_NODISCARD meron_status
meron_checkpoint_export(meron_context context, const char *folder,
                        const meron_checkpoint_export_options *options, meron_error **err);

MERON_END_DECLS

#endif /* MERON_CHECKPOINT_H */

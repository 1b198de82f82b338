/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meron/checkpoint.h: the states of all units, saved and loaded by all ranks together, and the
 * files in which they are kept.
 *
 * A checkpoint is a directory of safetensors files with a manifest (docs/checkpoint-format.md). It
 * holds values, f32 masters and optimizer states as ranges of named tensors, so it loads at any
 * number of ranks and under any plan. It exists whole or not at all, as ByteCheckpoint (NSDI 2025)
 * and Orbax have it; each rank writes and reads its own part. Models as Hugging Face publishes them
 * (safetensors, in one file or several with an index) are read like checkpoints of values, and
 * written by meron_checkpoint_export.
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

/* A tensor of the caller's own, or a part of one. */
typedef struct {
  uint32_t struct_size;  /* sizeof(meron_checkpoint_tensor) */
  uint32_t dims;         /* 0: a scalar; at most MERON_MAX_DIMS */
  const char *name;      /* 1 to 512 bytes of UTF-8 */
  const char *kind;      /* NULL: "extra". As docs/checkpoint-format.md lists them: "values" for a
                            buffer, "exp_avg", "state.KEY" for a state of an optimizer */
  const char *dtype;     /* as safetensors names it: "F32", "BF16", "I64", ... */
  const uint64_t *shape; /* of the whole tensor, row-major */
  uint64_t begin;        /* first element that `data` has */
  uint64_t count;        /* elements that it has */
  const void *data;      /* little endian, contiguous; may be NULL if count is 0 */
} meron_checkpoint_tensor;

/* Initial value of a meron_checkpoint_tensor. */
#define MERON_CHECKPOINT_TENSOR_INIT \
  { (uint32_t)sizeof(meron_checkpoint_tensor), 0, NULL, NULL, NULL, NULL, 0, 0, NULL }

/**
 * Fills the first `struct_size` bytes of *tensor with the initial value (for languages without
 * macros).
 * Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT.
 */
MERON_API MERON_NODISCARD meron_status meron_checkpoint_tensor_init(meron_checkpoint_tensor *tensor,
                                                                    size_t struct_size,
                                                                    meron_error **err);

/* ---- Saving ---- */

/* What is saved, and what happens to other checkpoints. */
typedef struct {
  uint32_t struct_size; /* sizeof(meron_checkpoint_save_options) */
  uint32_t values_only; /* 1: neither masters nor states of optimizers */
  uint32_t skip_frozen; /* 1: no frozen params */
  uint32_t overwrite;   /* 1: replaces a checkpoint of that name */
  uint64_t step;        /* the caller's count: of a line, the newest checkpoint has the highest */
  uint64_t keep;        /* complete checkpoints of the line that stay in the folder; 0: all */
  const char *extra;    /* NULL, or the caller's own state: the text of a JSON object, of rank 0 */
  const meron_optimizer *optimizers; /* whose states are saved; NULL: none */
  uint64_t optimizer_count;
  const meron_checkpoint_tensor *tensors; /* the caller's own; those of all ranks together have each
                                             element of a tensor once. NULL: none of this rank */
  uint64_t tensor_count;
  const char *mapping; /* NULL, or a JSON object: "PARAM": "NAME" in the files, for states too;
                          "" leaves the param out */
  uint32_t per_node; /* 1: each node has a folder of its own, such as one on a local disk. Ranks of
                        a node pass the same */
  uint32_t reserved_0; /* must be 0 */
} meron_checkpoint_save_options;

/* Initial value of a meron_checkpoint_save_options. */
#define MERON_CHECKPOINT_SAVE_OPTIONS_INIT                                                        \
  {                                                                                               \
    (uint32_t)sizeof(meron_checkpoint_save_options), 0, 0, 0, 0, 0, NULL, NULL, 0, NULL, 0, NULL, \
        0, 0                                                                                      \
  }

/**
 * Fills the first `struct_size` bytes of *options with the initial value (for languages without
 * macros).
 * Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT.
 */
MERON_API MERON_NODISCARD meron_status meron_checkpoint_save_options_init(
    meron_checkpoint_save_options *options, size_t struct_size, meron_error **err);

/**
 * Begins to save the states of all units, as they are now, as `name` in `folder`. Collective over
 * the world. A thread of the engine copies them into bounded memory and writes: gathers, forward
 * and backward go on meanwhile. A step or an update of a unit waits until the unit is copied, and
 * so does a reduction whose codec keeps feedback; writes of states, offloads, reloads, new
 * optimizers and the destruction of units wait until all units are. Views of states must not be
 * written before that. The counts of steps and the numbers of param groups are those of the call.
 * After a failure on any rank (a full disk) all ranks get the error, which names that rank, from
 * the future, and, if some rank has not waited for it, once again from the next save, which then
 * begins nothing; the checkpoints that were there stay, and training can go on. One save at a time:
 * the next one, and a load, wait for the one before. Closing the context waits for it too. A wait
 * for the future that is given up leaves the save as it is. A rank that gives no sign of progress
 * for twice the context's timeout breaks the group (MERON_E_TIMEOUT); one that is slow does not,
 * nor do steps that wait for it. With `per_node` a node's folder has the files of its ranks, and
 * the manifest of all (docs/checkpoint-format.md): the checkpoint exists once every node has given
 * it its name; a name that only some nodes have, because a host died meanwhile, is free.
 * @param out      receives the future.
 * @param folder   a directory that all ranks see; made if it is not there. With `per_node`, one
 * that all ranks of the node see.
 * @param name     one component of a path, not hidden, at most 200 bytes of UTF-8.
 * @param options  NULL for the values and masters alone.
 * Ownership: texts and arrays are copied; what a tensor's `data` points to must stay as it is until
 * meron_checkpoint_wait_copied; the caller releases *out. Blocks: until the save before has ended.
 * Threads: any.
 * Errors: MERON_E_ARGUMENT, MERON_E_STATE (a step is under way, a unit is updated, a gradient waits
 * for a step, states are offloaded), MERON_E_UNSUPPORTED (a unit of some ranks only),
 * MERON_E_HANDLE, MERON_E_STALE, -3xx. From the future: MERON_E_ARGUMENT (a name that will not do,
 * `extra` is no JSON object, tensors do not fit each other), MERON_E_DUPLICATE (the name is taken),
 * MERON_E_STATE (another process saves that name), MERON_E_NO_SPACE, MERON_E_IO, MERON_E_NO_MEMORY,
 * MERON_E_NOT_FOUND, MERON_E_TIMEOUT, MERON_E_CLOSED, -3xx.
 */
MERON_API MERON_NODISCARD meron_status meron_checkpoint_save_begin(
    meron_future *out, meron_context context, const char *folder, const char *name,
    const meron_checkpoint_save_options *options, meron_error **err);

/**
 * Waits until the save under way has copied what it saves: then the caller's tensors may change.
 * @param timeout_ns  nanoseconds; MERON_TIMEOUT_DEFAULT: without bound.
 * Returns MERON_OK also if no save is under way, or if it has failed; MERON_IN_PROGRESS when
 * timeout_ns passed first.
 * Blocks: on the drive. Threads: any. Errors: MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
 */
MERON_API MERON_NODISCARD meron_status meron_checkpoint_wait_copied(meron_context context,
                                                                    int64_t timeout_ns,
                                                                    meron_error **err);

/* How far the save under way is. */
typedef struct {
  uint32_t struct_size; /* sizeof(meron_checkpoint_progress), set by the caller */
  uint32_t saving;      /* 1: a save is under way */
  uint64_t total;       /* bytes that this rank writes; 0: not known yet, or no save */
  uint64_t copied;      /* of them, out of the units */
  uint64_t written;     /* of them, in files */
} meron_checkpoint_progress;

/**
 * Reads how far the save under way is, or how far the last one came.
 * @param out  struct_size set by the caller.
 * Ownership: the caller's. Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT, MERON_E_HANDLE,
 * MERON_E_STALE, MERON_E_FORKED.
 */
MERON_API MERON_NODISCARD meron_status meron_checkpoint_get_progress(meron_checkpoint_progress *out,
                                                                     meron_context context,
                                                                     meron_error **err);

/* What is written without a context, by one process. */
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
  { (uint32_t)sizeof(meron_checkpoint_write_options), 0, 0, NULL, NULL, NULL, 0 }

/**
 * Fills the first `struct_size` bytes of *options with the initial value (for languages without
 * macros).
 * Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT.
 */
MERON_API MERON_NODISCARD meron_status meron_checkpoint_write_options_init(
    meron_checkpoint_write_options *options, size_t struct_size, meron_error **err);

/**
 * Writes tensors as a checkpoint of one rank: what importers of other formats need. `data` is read
 * once and in order, so it may be mapped files.
 * @param folder, name  as meron_checkpoint_save_begin.
 * Ownership: everything is only read, during the call. Blocks: on the drive. Threads: any.
 * Errors: MERON_E_ARGUMENT, MERON_E_DUPLICATE, MERON_E_STATE, MERON_E_NO_SPACE, MERON_E_IO.
 */
MERON_API MERON_NODISCARD meron_status
meron_checkpoint_write(const char *folder, const char *name,
                       const meron_checkpoint_write_options *options, meron_error **err);

/* ---- Loading ---- */

/* What is loaded. */
typedef struct {
  uint32_t struct_size; /* sizeof(meron_checkpoint_load_options) */
  uint32_t lenient;     /* 1: params and tensors that the other side lacks are left alone */
  uint32_t values_only; /* 1: values, and masters by them; optimizers keep their states */
  uint32_t rank0_only;  /* 1: only rank 0 sees the files, and sends each rank what it needs */
  const meron_optimizer *optimizers; /* as they were given to the save; NULL: none */
  uint64_t optimizer_count;
  const char *mapping; /* NULL, or a JSON object: "PARAM": "TENSOR", or "PARAM": ["TENSOR", ...],
                          one after the other along the first dimension; others by their name */
  const char *claimed; /* NULL, or names of values that the caller reads itself, a line each */
  uint32_t per_node;   /* 1: each node has a folder of its own: one rank of each reads the node's
                          files, and sends each rank what it needs */
  uint32_t reserved_0; /* must be 0 */
} meron_checkpoint_load_options;

/* Initial value of a meron_checkpoint_load_options. */
#define MERON_CHECKPOINT_LOAD_OPTIONS_INIT \
  { (uint32_t)sizeof(meron_checkpoint_load_options), 0, 0, 0, NULL, 0, NULL, NULL, 0, 0 }

/**
 * Fills the first `struct_size` bytes of *options with the initial value (for languages without
 * macros).
 * Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT.
 */
MERON_API MERON_NODISCARD meron_status meron_checkpoint_load_options_init(
    meron_checkpoint_load_options *options, size_t struct_size, meron_error **err);

/**
 * Loads a checkpoint into all units: values, masters, states, counts of steps and numbers of groups
 * of the optimizers. Collective over the world. Before anything changes, all ranks have compared
 * names, shapes and optimizers, and opened the files; such an error leaves everything as it was.
 * An error after that is one on all ranks and breaks the group, because states are of two
 * checkpoints. When it ends on one rank, no rank reads the files any more. With `per_node` the
 * newest is the newest of which the nodes' folders together have all files; the numbers of nodes
 * and ranks may be others than at the save, and a node may have the files of several.
 * @param out      receives what was loaded.
 * @param folder   of checkpoints, or one of them; or a model as Hugging Face publishes it, a
 *                 directory or one file, with `values_only`.
 * @param name     NULL for the newest complete one of the line that was saved to last. Incomplete
 *                 ones are passed over, which the log says; a damaged one that may be newer is an
 *                 error.
 * @param options  NULL for values alone.
 * Ownership: the caller releases *out. Blocks: on the drive and on all ranks; other threads of this
 * rank that begin something wait. A rank that does not go on for twice the context's timeout ends
 * the load (MERON_E_TIMEOUT, which names it); raise the timeout for drives so slow. Threads: any.
 * Errors: MERON_E_NOT_FOUND, MERON_E_CORRUPT (names tensor, file and offset), MERON_E_VERSION (of a
 * newer version), MERON_E_ARGUMENT (it does not fit: missing, unexpected and other shapes are
 * listed), MERON_E_STATE and MERON_E_UNSUPPORTED as meron_checkpoint_save_begin, MERON_E_IO,
 * MERON_E_NO_MEMORY, MERON_E_AUTH (a link), MERON_E_HANDLE, MERON_E_STALE, -3xx.
 */
MERON_API MERON_NODISCARD meron_status meron_checkpoint_load(
    meron_checkpoint *out, meron_context context, const char *folder, const char *name,
    const meron_checkpoint_load_options *options, meron_error **err);

/* ---- Reading without a context ---- */

/**
 * Opens a checkpoint, or a model as Hugging Face publishes it, to look at it and to read tensors.
 * @param out            receives the checkpoint.
 * @param folder, name   as meron_checkpoint_load.
 * Ownership: the caller releases *out. Blocks: on the drive. Threads: any.
 * Errors: MERON_E_NOT_FOUND, MERON_E_CORRUPT, MERON_E_PARSE, MERON_E_VERSION, MERON_E_ARGUMENT,
 * MERON_E_AUTH (a link), MERON_E_IO, MERON_E_NO_MEMORY.
 */
MERON_API MERON_NODISCARD meron_status meron_checkpoint_open(meron_checkpoint *out,
                                                             const char *folder, const char *name,
                                                             meron_error **err);

/* What is known about a checkpoint. */
typedef struct {
  uint32_t struct_size; /* sizeof(meron_checkpoint_info), set by the caller */
  uint32_t world;       /* ranks that saved it */
  uint64_t step;        /* the caller's count */
  uint64_t bytes;       /* of its files */
  uint64_t tensors;     /* that it has */
  uint64_t bytes_read;  /* of its files, by this rank, until now */
  uint64_t missing;     /* states that it lacks, and that stayed as they were when it was loaded */
  uint64_t unexpected;  /* tensors that no unit has */
} meron_checkpoint_info;

/**
 * Reads what is known about a checkpoint.
 * @param out  struct_size set by the caller.
 * Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE,
 * MERON_E_FORKED.
 */
MERON_API MERON_NODISCARD meron_status meron_checkpoint_get_info(meron_checkpoint_info *out,
                                                                 meron_checkpoint checkpoint,
                                                                 meron_error **err);

/* Which text of a checkpoint. */
typedef int32_t meron_checkpoint_text_kind;
enum {
  MERON_CHECKPOINT_PATH = 0,        /* of its directory */
  MERON_CHECKPOINT_EXTRA = 1,       /* the caller's own state: a JSON object */
  MERON_CHECKPOINT_MISSING = 2,     /* a line per state */
  MERON_CHECKPOINT_UNEXPECTED = 3,  /* a line per tensor */
  MERON_CHECKPOINT_MANIFEST = 4,    /* all of its manifest: a JSON object. Of a model of Hugging
                                       Face: one that describes it, without checksums */
  MERON_CHECKPOINT_PASSED_OVER = 5, /* of one that was opened as the newest: the incomplete ones
                                       that were passed over, and why, and a line of another run
                                       that has a higher step; "" if there are none */
  MERON_CHECKPOINT_TEXT_KIND_FORCE_32_BITS = 0x7FFFFFFF
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
 * Reads elements of a tensor, as they are in the files, after their checksums were compared. Local:
 * no other rank takes part.
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
 * Releases a checkpoint; what was loaded stays.
 * Blocks: never. Threads: any, also a finalizer's. Errors: MERON_E_HANDLE, MERON_E_STALE.
 */
MERON_API meron_status meron_checkpoint_release(meron_checkpoint checkpoint, meron_error **err);

/* ---- Weights out ---- */

/* How values are exported. */
typedef struct {
  uint32_t struct_size;    /* sizeof(meron_checkpoint_export_options) */
  meron_dtype dtype;       /* of the floating-point values in the files */
  uint32_t keep_dtype;     /* 1: each param's own instead */
  uint32_t overwrite;      /* 1: replaces a model that is there */
  uint64_t max_file_bytes; /* of a file's tensors: it is closed before they would exceed it, and
                              a larger tensor has its own; 0: 5 GB */
  const char *mapping;     /* NULL, or a JSON object: "PARAM": "NAME" in the files; "" leaves the
                              param out */
  const meron_checkpoint_tensor *tensors; /* the caller's own of kind "values", whole (buffers);
                                             those of rank 0 count. NULL: none */
  uint64_t tensor_count;
} meron_checkpoint_export_options;

/* Initial value of a meron_checkpoint_export_options. */
#define MERON_CHECKPOINT_EXPORT_OPTIONS_INIT \
  { (uint32_t)sizeof(meron_checkpoint_export_options), MERON_F32, 1, 0, 0, NULL, NULL, 0 }

/**
 * Fills the first `struct_size` bytes of *options with the initial value (for languages without
 * macros).
 * Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT.
 */
MERON_API MERON_NODISCARD meron_status meron_checkpoint_export_options_init(
    meron_checkpoint_export_options *options, size_t struct_size, meron_error **err);

/**
 * Writes the values of all units as Hugging Face publishes models: model.safetensors, or several
 * files and model.safetensors.index.json. Collective over the world; each rank writes its own part
 * of each tensor in place, so nothing is gathered. The f32 master is the source where a param has
 * one and another dtype is written than the param's own. A tensor that layers share is one param
 * and written once. At every moment, also if a rank is killed, the folder has the model that was
 * there or the new one; its other files are left alone, and what a killed export left is removed by
 * the next. NaNs are written as they are.
 * @param folder   a directory that all ranks see; made if it is not there.
 * @param options  NULL for the initial value.
 * Ownership: everything is only read, during the call. Blocks: on the drive and on all ranks; other
 * threads of this rank that begin something wait. Threads: any.
 * Errors: MERON_E_ARGUMENT and MERON_E_PARSE (the mapping or a tensor, two tensors of
 * one name, nothing to export), MERON_E_DUPLICATE (a model is there), MERON_E_STATE (another export
 * to the folder is under way; and as meron_checkpoint_save_begin), MERON_E_UNSUPPORTED as that,
 * MERON_E_NO_SPACE, MERON_E_IO, MERON_E_TIMEOUT, MERON_E_HANDLE, MERON_E_STALE, -3xx.
 */
MERON_API MERON_NODISCARD meron_status
meron_checkpoint_export(meron_context context, const char *folder,
                        const meron_checkpoint_export_options *options, meron_error **err);

MERON_END_DECLS

#endif /* MERON_CHECKPOINT_H */

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meron/param.h: params (named tensors), units (params that are gathered together), and updates
 * (writes of a rank to its shards).
 *
 * Life of a unit's values: every rank that gathered version v may read it. An update (or an
 * optimizer step) waits until every rank has released v, writes each rank's shard in place, and
 * publishes v + 1.
 */
#ifndef MERON_PARAM_H
#define MERON_PARAM_H

#include "meron/base.h"
#include "meron/context.h"
#include "meron/group.h"

MERON_BEGIN_DECLS

/* A named tensor. A value; 0 is null. */
typedef struct {
  uint64_t id;
} meron_param;

/* Params that are gathered and reduced together. A value; 0 is null. */
typedef struct {
  uint64_t id;
} meron_unit;

/* The most dimensions of a param. */
#define MERON_MAX_DIMS 16

/* Description of a param. */
typedef struct {
  uint32_t struct_size; /* sizeof(meron_param_desc) */
  meron_dtype dtype;    /* of the values that are gathered */
  const char *name;     /* unique in the context, 1 to 512 bytes of UTF-8 */
  const int64_t *shape; /* `dims` sizes, each >= 0, row-major */
  uint32_t dims;        /* 0: a scalar; at most MERON_MAX_DIMS */
  uint32_t frozen;      /* 1: has no gradient and no optimizer state */
  meron_group group;    /* the ranks that share it; null: the world */
} meron_param_desc;

/* Initial value of a meron_param_desc. */
#define MERON_PARAM_DESC_INIT                                          \
  {                                                                    \
    MERON_SIZEOF_U32(meron_param_desc), MERON_F32, NULL, NULL, 0, 0, { \
      0                                                                \
    }                                                                  \
  }

/**
 * Fills the first `struct_size` bytes of *desc with the initial value (for languages without
 * macros).
 * Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT.
 */
MERON_API MERON_NODISCARD meron_status meron_param_desc_init(meron_param_desc *desc,
                                                             size_t struct_size, meron_error **err);

/* meron_view.device: memory of the host. */
#define MERON_DEVICE_HOST (-1)

/* A contiguous range of a tensor in memory. The library fills all fields. */
typedef struct {
  void *data;        /* first element; never NULL, also when count is 0 */
  uint64_t count;    /* elements, contiguous */
  uint64_t offset;   /* index of the first element in the full tensor, row-major */
  meron_dtype dtype; /* of the elements */
  uint32_t writable; /* 1: may be written; 0: a write faults or is undefined */
  int32_t device; /* owner of the memory: MERON_DEVICE_HOST, or the number of the context's device
                     ("cuda:1" has the number 1) */
  uint32_t reserved_0; /* 0, as the next two: for later versions */
  uint64_t reserved_1;
  uint64_t reserved_2;
} meron_view;

/* DLPack 1.x's exchange struct (https://dmlc.github.io/dlpack); its header is the caller's to
 * include. */
struct DLManagedTensorVersioned;

/**
 * Registers a param. Collective over its group: all ranks register the same params in the same
 * order; a difference is reported with both descriptions.
 * @param out   receives the param.
 * @param desc  copied.
 * Ownership: the caller releases *out. Blocks: as meron_barrier_begin. Threads: any. Errors:
 * MERON_E_ARGUMENT (negative or overflowing shape, unknown dtype), MERON_E_DUPLICATE (name),
 * MERON_E_HANDLE, MERON_E_STALE, MERON_E_MISMATCH, -3xx.
 */
MERON_API MERON_NODISCARD meron_status meron_param_register(meron_param *out, meron_context context,
                                                            const meron_param_desc *desc,
                                                            meron_error **err);

/* Information about a param. */
typedef struct {
  uint32_t struct_size; /* sizeof(meron_param_info), as the INIT macro sets it */
  meron_dtype dtype;
  uint32_t dims;
  uint32_t frozen;
  int64_t shape[MERON_MAX_DIMS]; /* the first `dims` count */
  uint64_t count;                /* elements of the full tensor */
  uint64_t shard_offset;         /* first element that this rank updates */
  uint64_t shard_count;          /* number of these elements; 0 before the param is in a unit */
  uint64_t flat; /* index of its flat: see meron_unit_flat; 0 before the param is in a unit */
  uint64_t flat_offset; /* elements of the flat before the param; 0 before it is in a unit */
} meron_param_info;

/* A meron_param_info for the library to fill. */
#define MERON_PARAM_INFO_INIT \
  { MERON_SIZEOF_U32(meron_param_info), 0, 0, 0, {0}, 0, 0, 0, 0, 0 }

/**
 * Reads the information about a param.
 * @param out  struct_size set by the caller.
 * Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE,
 * MERON_E_FORKED.
 */
MERON_API MERON_NODISCARD meron_status meron_param_get_info(meron_param_info *out,
                                                            meron_param param, meron_error **err);

/**
 * The param's name.
 * Ownership: borrowed from the param. Blocks: never. Threads: any. Errors: as
 * meron_param_get_info.
 */
MERON_API MERON_NODISCARD meron_status meron_param_name(const char **out, meron_param param,
                                                        meron_error **err);

/**
 * Releases the handle. A param that is in a unit lives as long as the unit. Blocks: never. Threads:
 * any, also a finalizer's. Errors: MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
 */
MERON_API meron_status meron_param_release(meron_param param, meron_error **err);

/**
 * Creates a unit and reserves its memory on this rank according to the plan; values are zero at
 * version 0. The memory of gradients is counted, and checked against the host's free memory, but
 * the first gradient allocates it: see meron_gradient_view. Collective over the params' group.
 * @param name    unique in the context, 1 to 512 bytes of UTF-8.
 * @param params  `count` params of one group, none of them in a unit.
 * Ownership: the caller releases *out; the memory stays until meron_unit_destroy or until the
 * context is closed, because peers may read it. Blocks: as meron_barrier_begin. Threads: any.
 * Errors: MERON_E_ARGUMENT, MERON_E_DUPLICATE (a param twice, or in a unit already, or the name),
 * MERON_E_NO_MEMORY (figures), -3xx. In a group of several ranks, a lack of memory on one of them
 * breaks the group, with MERON_E_NO_MEMORY on all of them: the error names the rank.
 */
MERON_API MERON_NODISCARD meron_status meron_unit_create(meron_unit *out, meron_context context,
                                                         const char *name,
                                                         const meron_param *params, size_t count,
                                                         meron_error **err);

/**
 * Destroys a unit and its params: releases their memory on the host, on the device and on the
 * drive, and their names. Collective over the unit's group: all ranks call it, and no rank creates
 * units or groups meanwhile. All handles of the unit and of its params become stale; views of its
 * values and gradients must not be read any more. Ownership: none. Blocks: while a save copies
 * states, without a deadline; then until every rank has called it and no rank uses the unit any
 * more, at most the deadline. Threads: any, one unit at a time. Errors: MERON_E_STATE, before this
 * rank notifies its peers and before anything has changed
 * (the unit is gathered, updated, reduced or stepped, or it belongs to a schedule or an optimizer:
 * release these first; another thread destroys a unit), MERON_E_CANCELLED (should_stop: call again
 * to continue), MERON_E_HANDLE, MERON_E_STALE (also the second time), -3xx (names a rank that does
 * not call).
 */
MERON_API MERON_NODISCARD meron_status meron_unit_destroy(meron_unit unit, meron_error **err);

/* Encoding of numbers that are sent between replicas; docs/plan.md has the details. */
typedef int32_t meron_codec;
enum {
  MERON_CODEC_NONE = 0,
  MERON_CODEC_BF16 = 1,
  MERON_CODEC_INT8 = 2,
  MERON_CODEC_INT4 = 3,
};

/* State of a unit on this rank. */
typedef int32_t meron_unit_state;
enum {
  MERON_UNIT_STATE_PARTITIONED = 0, /* this rank holds its shard only */
  MERON_UNIT_STATE_GATHERING = 1,   /* a gather is pending */
  MERON_UNIT_STATE_AVAILABLE = 2,   /* leased at least once */
  MERON_UNIT_STATE_UPDATING = 3,    /* being written */
};

/* Information about a unit. */
typedef struct {
  uint32_t struct_size; /* sizeof(meron_unit_info), as the INIT macro sets it */
  meron_unit_state state;
  uint64_t version; /* of the values; 0 until the first update */
  uint32_t leases;
  uint32_t reduced; /* 1: a reduced gradient waits for an optimizer step */
  /* Codecs of values and gradients between replicas: the plan's, or bf16 if its error was above the
   * plan's limit. */
  meron_codec param_codec;
  meron_codec gradient_codec;
  /* Relative error of this rank's last encoding: |x - decoded x| / |x| in the 2-norm, of all values
   * and of the worst block. 0 before the first one, and without a codec; NaN or infinite if values
   * were. */
  double param_error;
  double param_worst_block;
  double gradient_error;
  double gradient_worst_block;
  uint64_t params; /* number of its params: see meron_unit_param */
  uint64_t flats;  /* number of its flats: see meron_unit_flat */
} meron_unit_info;

/* A meron_unit_info for the library to fill. */
#define MERON_UNIT_INFO_INIT \
  { MERON_SIZEOF_U32(meron_unit_info), 0, 0, 0, 0, 0, 0, 0.0, 0.0, 0.0, 0.0, 0, 0 }

/**
 * Reads the information about a unit.
 * @param out  struct_size set by the caller.
 * Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE,
 * MERON_E_FORKED.
 */
MERON_API MERON_NODISCARD meron_status meron_unit_get_info(meron_unit_info *out, meron_unit unit,
                                                           meron_error **err);

/**
 * The unit's name.
 * Ownership: borrowed from the unit, until it is destroyed or the context is closed. Blocks: never.
 * Threads: any. Errors: as meron_unit_get_info.
 */
MERON_API MERON_NODISCARD meron_status meron_unit_name(const char **out, meron_unit unit,
                                                       meron_error **err);

/**
 * A param of the unit, for meron_param_get_info and meron_param_name.
 * @param out    receives a new handle of the param.
 * @param index  0 to meron_unit_info.params - 1, in the order of meron_unit_create.
 * Ownership: the caller releases *out. Blocks: never. Threads: any. Errors: as
 * meron_unit_get_info; MERON_E_ARGUMENT also for another index.
 */
MERON_API MERON_NODISCARD meron_status meron_unit_param(meron_param *out, meron_unit unit,
                                                        uint64_t index, meron_error **err);

/*
 * Information about a flat: the params of a unit that have one dtype and are all trained or all
 * frozen, one after another in memory. Each begins at its meron_param_info.flat_offset; the
 * elements between a param and the next one are padding. The layout depends only on the unit's
 * params, so it is the same on all ranks and under all plans.
 */
typedef struct {
  uint32_t struct_size; /* sizeof(meron_flat_info), as the INIT macro sets it */
  meron_dtype dtype;
  uint32_t frozen;     /* 1: its params are frozen; 0: they are trained */
  uint32_t reserved_0; /* 0 */
  uint64_t elements;   /* with the padding behind each param */
  uint64_t bytes;      /* of these elements */
} meron_flat_info;

/* A meron_flat_info for the library to fill. */
#define MERON_FLAT_INFO_INIT \
  { MERON_SIZEOF_U32(meron_flat_info), 0, 0, 0, 0, 0 }

/**
 * Reads the information about a flat of the unit. meron_gather_begin can copy a flat into the
 * caller's memory as a whole.
 * @param out    struct_size set by the caller.
 * @param index  0 to meron_unit_info.flats - 1, in the order of their first params.
 * Blocks: never. Threads: any. Errors: as meron_unit_get_info; MERON_E_ARGUMENT also for another
 * index.
 */
MERON_API MERON_NODISCARD meron_status meron_unit_flat(meron_flat_info *out, meron_unit unit,
                                                       uint64_t index, meron_error **err);

/**
 * Releases the handle. Blocks: never. Threads: any, also a finalizer's. Errors: MERON_E_HANDLE,
 * MERON_E_STALE, MERON_E_FORKED.
 */
MERON_API meron_status meron_unit_release(meron_unit unit, meron_error **err);

/**
 * Begins an update of some units: requests that every rank release the current version. Collective
 * over the units' group. When it has ended, this rank's shards may be written.
 * @param out    receives the update.
 * @param units  `count` units of one group, none leased on this rank.
 * Ownership: the caller ends *out by meron_update_publish. A release before that cancels the
 * update: if this rank has waited for it and called neither meron_update_write nor
 * meron_update_view, its values are published unchanged; otherwise the group breaks with
 * MERON_E_ABORTED on every rank, because partly written values must not be published and peers
 * continue the update. Blocks: as meron_barrier_begin. Threads: any. Errors: MERON_E_ARGUMENT,
 * MERON_E_STATE (a unit is leased here or being updated, a step is pending, or a master is
 * offloaded), MERON_E_DUPLICATE, MERON_E_HANDLE, MERON_E_STALE, -3xx.
 */
MERON_API MERON_NODISCARD meron_status meron_update_begin(meron_future *out,
                                                          const meron_unit *units, size_t count,
                                                          meron_error **err);

/**
 * The shard of `param` that this rank updates (the full tensor if the plan replicates the optimizer
 * states), in the param's dtype, writable, in memory of the host. If the param has a master, the
 * publication copies all of the view into it. Ownership: borrowed until meron_update_publish.
 * Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT (the param is in none of the units),
 * MERON_E_STATE (no call has waited for the update), MERON_E_HANDLE, MERON_E_STALE.
 */
MERON_API MERON_NODISCARD meron_status meron_update_view(meron_view *out, meron_future update,
                                                         meron_param param, meron_error **err);

/**
 * Writes this rank's shard of `param` from the full tensor. Every rank passes equal values.
 * Converts between dtypes, and keeps f32 values in the master copy if there is one.
 * @param data   `count` elements, row-major.
 * @param count  the param's full element count.
 * Ownership: `data` is only read, during the call. Blocks: only while another thread of this rank
 * begins an operation. Threads: any. Errors: as meron_update_view.
 */
MERON_API MERON_NODISCARD meron_status meron_update_write(meron_future update, meron_param param,
                                                          const void *data, uint64_t count,
                                                          meron_dtype dtype, meron_error **err);

/**
 * Publishes the written shards as the next version and ends the update; the handle becomes stale.
 * Elements that were not written keep their values. Blocks: only while another thread of this rank
 * begins an operation. Threads: any. Errors: MERON_E_STATE (not waited for), MERON_E_HANDLE,
 * MERON_E_STALE, -3xx.
 */
MERON_API MERON_NODISCARD meron_status meron_update_publish(meron_future update, meron_error **err);

MERON_END_DECLS

#endif /* MERON_PARAM_H */

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meron/gather.h: full tensors on demand, by all-gathers (in FSDP2: unshard and reshard).
 *
 * If the shards of a unit are contiguous in memory that the ranks share, a gather copies nothing:
 * it waits until every rank has published its shard of the version, and returns a read-only view.
 *
 * If the context has a device, views are in its memory: the values are copied to the device once,
 * on a stream of Meron's own, for all gathers that hold them at the time. meron_gather_wait_stream
 * makes a stream of the trainer wait for the copy without blocking the host, and
 * meron_gather_release_on_stream releases the memory when the queued work of that stream is done.
 *
 * A gather is a future (future.h): wait for it, poll it and release it like every other operation.
 * It holds leases on its units: for a view until its release; for a copy only until the copy is
 * made.
 */
#ifndef MERON_GATHER_H
#define MERON_GATHER_H

#include "meron/base.h"
#include "meron/context.h"
#include "meron/future.h"
#include "meron/param.h"

MERON_BEGIN_DECLS

/* Destination of the full tensors. */
typedef int32_t meron_gather_mode;
enum {
  MERON_GATHER_VIEW = 0, /* read-only, in place where the plan allows it */
  MERON_GATHER_COPY = 1, /* a private, writable copy that belongs to the gather */
  MERON_GATHER_INTO = 2, /* into the caller's memory */
};

/* Memory of a view, by its tier. */
typedef int32_t meron_tier;
enum {
  MERON_TIER_DEVICE = 0, /* in the device's memory, if the context has a device; else the host's */
  MERON_TIER_HOST = 1,   /* in the host's memory */
};

/* A destination for MERON_GATHER_INTO: of one param. */
typedef struct {
  meron_param param;
  void *data; /* for the full tensor, row-major, in the param's dtype; memory of the host, or of the
                 context's device */
  uint64_t bytes; /* exactly its size */
} meron_destination;

/* A destination for MERON_GATHER_INTO: of a flat, so of all its params, by one copy. */
typedef struct {
  meron_unit unit; /* one of the gathered units */
  uint64_t flat;   /* its index, see meron_unit_flat */
  void *data;      /* for the flat, in its dtype: the gather writes each param at its
                      meron_param_info.flat_offset, and unspecified values to the padding; memory of the
                      host, or of the context's device */
  uint64_t bytes;  /* exactly meron_flat_info.bytes */
} meron_flat_destination;

/* Options of a gather. */
typedef struct {
  uint32_t struct_size; /* sizeof(meron_gather_options) */
  meron_gather_mode mode;
  const meron_destination *destinations; /* MERON_GATHER_INTO: one per requested param, but for
                                            those of `flats` */
  uint64_t destination_count;
  meron_tier tier;     /* of a view; a copy is in the host's memory */
  uint32_t reserved_0; /* must be 0 */
  void *stream; /* destinations in the device's memory are written after the work that is queued on
                   this stream so far; NULL: its default stream */
  const meron_flat_destination *flats; /* MERON_GATHER_INTO: one per requested flat */
  uint64_t flat_count;
} meron_gather_options;

/* Initial value of a meron_gather_options. */
#define MERON_GATHER_OPTIONS_INIT                                                             \
  {                                                                                           \
    MERON_SIZEOF_U32(meron_gather_options), MERON_GATHER_VIEW, NULL, 0, MERON_TIER_DEVICE, 0, \
        NULL, NULL, 0                                                                         \
  }

/**
 * Fills the first `struct_size` bytes of *options with the initial value (for languages without
 * macros).
 * Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT.
 */
MERON_API MERON_NODISCARD meron_status meron_gather_options_init(meron_gather_options *options,
                                                                 size_t struct_size,
                                                                 meron_error **err);

/**
 * Begins a gather. Collective over the units' group; the mode may differ between ranks. When it has
 * ended, the tensors are full, those on a device too. A wait makes the requested copy, and may end
 * with MERON_E_NO_MEMORY (the device is full: only this rank is concerned, and everything else
 * stays usable) or MERON_E_DEVICE.
 * @param out      receives the gather, which holds a lease on every unit.
 * @param units    `count` units of one group.
 * @param options  NULL for a view.
 * Ownership: the caller releases *out, which releases the leases; destinations must stay valid
 * until it has ended or is released. A release cancels a pending gather, and makes views invalid:
 * on a device the caller must first wait for all work that uses them (or see
 * meron_gather_release_on_stream). Blocks: as meron_barrier_begin. Threads: any. Errors:
 * MERON_E_ARGUMENT (also a destination on another device), MERON_E_DUPLICATE (a unit or a flat
 * twice; a param with a destination of its own and one of its flat), MERON_E_STATE (a unit is being
 * updated here, or a step is pending), MERON_E_NO_MEMORY (a copy), MERON_E_DEVICE, MERON_E_HANDLE,
 * MERON_E_STALE, MERON_E_FORKED, -3xx.
 */
MERON_API MERON_NODISCARD meron_status meron_gather_begin(meron_future *out,
                                                          const meron_unit *units, size_t count,
                                                          const meron_gather_options *options,
                                                          meron_error **err);

/**
 * Makes `stream` wait until the tensors are full on the device: later work on the stream sees them.
 * Does not wait for the device; for tensors on the host it is meron_future_wait.
 * @param stream      of the context's device (a cudaStream_t); NULL: its default stream.
 * @param timeout_ns  as meron_future_wait, of the wait for peers.
 * Blocks: on peers, at most the deadline. Threads: any. Errors: as of a wait for
 * the gather; MERON_E_ARGUMENT (the context has no device, a stream of another one), MERON_E_STATE
 * (the stream is being captured into a graph).
 */
MERON_API MERON_NODISCARD meron_status meron_gather_wait_stream(meron_future gather, void *stream,
                                                                int64_t timeout_ns,
                                                                meron_error **err);

/**
 * The full tensor of a param of a gather that has ended. On a device, a call of meron_future_wait
 * or meron_gather_wait_stream must have waited for the gather, and the pointer is one of the
 * device. Ownership: borrowed until meron_future_release. Read-only for MERON_GATHER_VIEW, because
 * it is the memory of the values, which other ranks may read. On the host it is mapped read-only
 * under every plan: a write ends the process by a segmentation fault. A device does not protect its
 * memory: a write there damages the values. Gather with MERON_GATHER_COPY or MERON_GATHER_INTO to
 * change values; the tensor is then in the copy, or in the destination of the param or of its flat.
 * Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT (not in this gather),
 * MERON_E_STATE (not full yet, or on a device and no call has waited for it), MERON_E_DEVICE,
 * MERON_E_HANDLE, MERON_E_STALE.
 */
MERON_API MERON_NODISCARD meron_status meron_gather_view(meron_view *out, meron_future gather,
                                                         meron_param param, meron_error **err);

/**
 * The same as a DLPack tensor (version 1.x; of the CPU or of a CUDA device), with a separate lease
 * that its deleter releases. Its flags are read-only for MERON_GATHER_VIEW; a consumer that ignores
 * them, as PyTorch does, must not write: see meron_gather_view. MERON_GATHER_INTO is an error: that
 * memory is the caller's. On a device it may be taken before a call has waited; work that waits for
 * the gather may read it. Ownership: the caller calls (*out)->deleter(*out) once. Until then the
 * memory stays readable, also after the context was closed; peers may change the values from then
 * on. On a device, work that was requested before the deleter's call may still use the memory, on
 * streams that have waited for the gather (meron_gather_wait_stream): these must exist then, and
 * must not be captured into a graph. Blocks: never. Threads: any. Errors: as meron_gather_view,
 * MERON_E_UNSUPPORTED.
 */
MERON_API MERON_NODISCARD meron_status meron_gather_dlpack(struct DLManagedTensorVersioned **out,
                                                           meron_future gather, meron_param param,
                                                           meron_error **err);

/**
 * As meron_future_release, if queued work of `stream` still uses the views: their memory on the
 * device is released when that work is done. DLPack tensors keep theirs.
 * @param stream  of the context's device; NULL: its default stream.
 * Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT and MERON_E_STATE as
 * meron_gather_wait_stream (then nothing is released), MERON_E_DEVICE, MERON_E_HANDLE,
 * MERON_E_STALE.
 */
MERON_API MERON_NODISCARD meron_status meron_gather_release_on_stream(meron_future gather,
                                                                      void *stream,
                                                                      meron_error **err);

MERON_END_DECLS

#endif /* MERON_GATHER_H */

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meron/gather.h: full tensors on demand.
 *
 * Where the shards of a unit lie side by side in memory that the ranks share, a gather copies
 * nothing: it waits until every owner has published the version, and hands out a read-only view.
 *
 * Where the context has a device, views are in its memory: the values are copied up once, on a
 * stream of Meron's own, for all gathers that have them at a time. meron_gather_wait_stream makes a
 * stream of the trainer's wait for that without the host, and meron_gather_release_on_stream gives
 * the memory back when the work that was asked of that stream is done.
 *
 * A gather is a future (future.h): waited for, polled and released as every other operation. It has
 * leases on its units: of a view until it is released; of a copy only until that is made.
 */
#ifndef MERON_GATHER_H
#define MERON_GATHER_H

#include "meron/base.h"
#include "meron/context.h"
#include "meron/future.h"
#include "meron/param.h"

MERON_BEGIN_DECLS

/* Where the full tensors go. */
typedef int32_t meron_gather_mode;
enum {
  MERON_GATHER_VIEW = 0, /* read-only, in place where the plan allows it */
  MERON_GATHER_COPY = 1, /* a private, writable copy that belongs to the gather */
  MERON_GATHER_INTO = 2, /* into the caller's memory */
  MERON_GATHER_MODE_FORCE_32_BITS = 0x7FFFFFFF
};

/* Where a view is. */
typedef int32_t meron_gather_place;
enum {
  MERON_PLACE_DEVICE = 0, /* in the device's memory, where the context has one; else the host's */
  MERON_PLACE_HOST = 1,   /* in the host's memory */
  MERON_GATHER_PLACE_FORCE_32_BITS = 0x7FFFFFFF
};

/* A destination for MERON_GATHER_INTO. */
typedef struct {
  meron_param param;
  void *data; /* for the whole tensor, row-major, in the param's dtype; memory of the host, or of
                 the context's device */
  uint64_t bytes; /* exactly its size */
} meron_destination;

/* How a gather is done. */
typedef struct {
  uint32_t struct_size; /* sizeof(meron_gather_options) */
  meron_gather_mode mode;
  const meron_destination *destinations; /* MERON_GATHER_INTO: one per param that is wanted */
  uint64_t destination_count;
  meron_gather_place place; /* of a view; a copy is in the host's memory */
  uint32_t reserved_0;      /* must be 0 */
  void *stream; /* destinations in the device's memory are written after what was asked of this
                   stream so far; NULL: its default stream */
} meron_gather_options;

/* Initial value of a meron_gather_options. */
#define MERON_GATHER_OPTIONS_INIT                                                              \
  {                                                                                            \
    (uint32_t)sizeof(meron_gather_options), MERON_GATHER_VIEW, NULL, 0, MERON_PLACE_DEVICE, 0, \
        NULL                                                                                   \
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
 * ended, the tensors are full, those on a device too; a wait makes the copy that was asked for, and
 * may end with MERON_E_NO_MEMORY (the device has no room: this rank alone is concerned, and all
 * else is usable as before) or MERON_E_DEVICE.
 * @param out      receives the gather, which holds a lease on every unit.
 * @param units    `count` units of one group.
 * @param options  NULL for a view.
 * Ownership: the caller releases *out, which gives the leases back; destinations must stay valid
 * until it has ended or is released. A release gives up what has not ended, and makes views
 * invalid: on a device the caller has waited for all that uses them (or see
 * meron_gather_release_on_stream).
 * Blocks: never, unless this rank is 1,024 operations ahead of a peer. Threads: any.
 * Errors: MERON_E_ARGUMENT (also a destination on another device), MERON_E_DUPLICATE (a unit
 * twice), MERON_E_STATE (a unit is being updated here), MERON_E_NO_MEMORY (a copy), MERON_E_DEVICE,
 * MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED, -3xx.
 */
MERON_API MERON_NODISCARD meron_status meron_gather_begin(meron_future *out,
                                                          const meron_unit *units, size_t count,
                                                          const meron_gather_options *options,
                                                          meron_error **err);

/**
 * Makes `stream` wait until the tensors are full on the device: what is asked of it from now on
 * sees them. Without waiting for the device; for tensors on the host it is meron_future_wait.
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
 * The whole tensor of a param of a full gather; on a device, of one that was waited for by
 * meron_future_wait or meron_gather_wait_stream: there the pointer is one of the device.
 * Ownership: borrowed until meron_future_release. Read-only for MERON_GATHER_VIEW: other ranks read
 * the same memory, which is mapped read-only where the plan shards it, so that a write ends the
 * process by a segmentation fault; where the plan replicates it, a write damages the values. Gather
 * with MERON_GATHER_COPY or MERON_GATHER_INTO to change values. Blocks: never. Threads: any.
 * Errors: MERON_E_ARGUMENT (not in this gather), MERON_E_STATE (not full yet, or on a device that
 * no call has waited for), MERON_E_DEVICE, MERON_E_HANDLE, MERON_E_STALE.
 */
MERON_API MERON_NODISCARD meron_status meron_gather_view(meron_view *out, meron_future gather,
                                                         meron_param param, meron_error **err);

/* DLPack 1.x's exchange struct (https://dmlc.github.io/dlpack); its header is the caller's to
 * include. */
struct DLManagedTensorVersioned;

/**
 * The same as a DLPack tensor (version 1.x; the CPU's, or that of a CUDA device), with a lease of
 * its own that its deleter gives back. Its flags say read-only for MERON_GATHER_VIEW; a consumer
 * that ignores that, as PyTorch does, must not write. MERON_GATHER_INTO is refused: that memory is
 * the caller's. On a device it may be taken before anybody has waited, and is read by what waits
 * for the gather. Ownership: the caller calls (*out)->deleter(*out) once. Until then the memory
 * stays readable, also after the context was closed; peers may change the values from then on. On a
 * device, work that was requested before the deleter's call may still use the memory, on streams
 * that have waited for the gather (meron_gather_wait_stream): these must exist then, and must not
 * be captured into a graph. Blocks: never. Threads: any. Errors: as meron_gather_view,
 * MERON_E_UNSUPPORTED.
 */
MERON_API MERON_NODISCARD meron_status meron_gather_dlpack(struct DLManagedTensorVersioned **out,
                                                           meron_future gather, meron_param param,
                                                           meron_error **err);

/**
 * As meron_future_release, where work that was asked of `stream` so far still uses the views: their
 * memory on the device goes back when that is done. DLPack tensors keep theirs.
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

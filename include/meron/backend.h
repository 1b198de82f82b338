/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meron/backend.h: what the engine asks of a device and of a library of collectives between
 * devices, and what a module answers. For authors of modules; trainers do not need it.
 *
 * A module is a shared library that the engine opens at run time (libmeron_cuda.so for NVIDIA's
 * GPUs, libmeron_nccl.so for what they send to each other). It exports one function,
 * meron_backend_query, by which both agree on a version of this page; neither is linked with the
 * other. What is written here is version MERON_BACKEND_ABI, and does not change: a later version
 * adds fields at the end of the tables.
 *
 * What the functions of a table must keep to:
 *
 *   - They may be called by any thread, several at a time, for different streams.
 *   - Work on a stream is done in the order in which it was asked for; the call itself does not
 *     wait for it. Only functions that say so wait.
 *   - A NULL stream is the device's default one.
 *   - They leave the calling thread's own current device as it was.
 *   - Exceptions must not leave them. A negative status is a failure, and what is known of it is
 *     written to *failure, which may be NULL.
 */
#ifndef MERON_BACKEND_H
#define MERON_BACKEND_H

#include "meron/base.h"

MERON_BEGIN_DECLS

/* The version of this page. */
#define MERON_BACKEND_ABI 1

/* Why a call failed. Filled by the callee, but for struct_size. */
typedef struct {
  uint32_t struct_size; /* sizeof(meron_backend_failure) */
  int32_t code;         /* the device library's own number; 0: there is none */
  uint32_t broken;      /* 1: nothing can be done with the device any more in this process */
  uint32_t reserved_0;  /* 0 */
  char text[240];       /* one sentence, lower case, no full stop, NUL-terminated */
} meron_backend_failure;

/* Where a pointer points to. */
typedef int32_t meron_memory_kind;
enum {
  MERON_MEMORY_HOST = 0,    /* memory of the host that the device does not know */
  MERON_MEMORY_PINNED = 1,  /* of the host, registered with the device */
  MERON_MEMORY_DEVICE = 2,  /* of a device */
  MERON_MEMORY_MANAGED = 3, /* of both, moved by the driver */
  MERON_MEMORY_KIND_FORCE_32_BITS = 0x7FFFFFFF
};

/* A device, as it was found. */
typedef struct {
  uint32_t struct_size;  /* sizeof(meron_device_info), set by the caller */
  int32_t index;         /* among the devices of this process */
  char name[64];         /* of the model */
  char bus[32];          /* where it is plugged in: tells devices of a host apart */
  uint64_t memory_bytes; /* that it has */
  uint64_t free_bytes;   /* of these, unused */
  uint32_t capability;   /* 90 for compute capability 9.0; 0 where there is no such thing */
  uint32_t multiprocessors;
} meron_device_info;

/* Called when work of a stream has come so far, by a thread of the device's library: must not call
 * any function of the table. */
typedef void (*meron_device_notify_fn)(void *user);

/* The functions of a device's module. `device` is what `open` returned. */
typedef struct {
  uint32_t struct_size; /* sizeof(meron_device_table) of the module */
  uint32_t reserved_0;  /* 0 */

  /* How many devices there are. */
  meron_status (*count)(int32_t *out, meron_backend_failure *failure);
  /* Opens device `index`, or with -1 the calling thread's current one. May wait for the driver. */
  meron_status (*open)(void **out, int32_t index, meron_backend_failure *failure);
  /* Nothing of the device is used any more. Waits for what is under way on streams made here. */
  void (*close)(void *device);
  meron_status (*describe)(meron_device_info *out, void *device, meron_backend_failure *failure);

  /* Memory of the device, aligned to 512 bytes, that may be used by work that is asked of `stream`
   * from now on. MERON_E_NO_MEMORY: there is none, and the device is usable as before. */
  meron_status (*allocate)(void **out, void *device, uint64_t bytes, void *stream,
                           meron_backend_failure *failure);
  /* Gives memory back once what was asked of `stream` so far is done. */
  meron_status (*release)(void *device, void *data, void *stream, meron_backend_failure *failure);
  /* Registers memory of the host, whole pages, so that copies from and to it go on by themselves;
   * until it is unpinned it must stay mapped to the same pages. Refusals are no failure of the
   * device: MERON_E_NO_MEMORY, MERON_E_UNSUPPORTED. */
  meron_status (*pin)(void *device, void *data, uint64_t bytes, meron_backend_failure *failure);
  void (*unpin)(void *device, void *data);
  /* Where `data` points to, and for memory of a device, of which. */
  meron_status (*locate)(meron_memory_kind *kind, int32_t *index, void *device, const void *data,
                         meron_backend_failure *failure);

  /* A stream of the engine's own; `urgent`: its work goes before that of others. */
  meron_status (*stream_create)(void **out, void *device, uint32_t urgent,
                                meron_backend_failure *failure);
  void (*stream_destroy)(void *device, void *stream);
  /* MERON_E_ARGUMENT: a stream of another device; MERON_E_STATE: it is being captured into a graph,
   * of which what Meron asks of a stream cannot be a part. */
  meron_status (*stream_check)(void *device, void *stream, meron_backend_failure *failure);
  /* Waits until all that was asked of the stream is done. */
  meron_status (*stream_synchronize)(void *device, void *stream, meron_backend_failure *failure);

  /* An event is a point in a stream's work. One that was never recorded has come. */
  meron_status (*event_create)(void **out, void *device, meron_backend_failure *failure);
  void (*event_destroy)(void *device, void *event);
  meron_status (*event_record)(void *device, void *event, void *stream,
                               meron_backend_failure *failure);
  /* MERON_OK: it has come; MERON_IN_PROGRESS: not yet. */
  meron_status (*event_query)(void *device, void *event, meron_backend_failure *failure);
  /* What is asked of `stream` from now on waits for the event as it was last recorded. */
  meron_status (*stream_wait)(void *device, void *stream, void *event,
                              meron_backend_failure *failure);
  /* Calls `notify` when all that was asked of the stream so far is done. */
  meron_status (*stream_notify)(void *device, void *stream, meron_device_notify_fn notify,
                                void *user, meron_backend_failure *failure);

  /* Copies between any two places that the device reaches. Memory of the host that is not pinned
   * may be read, or written, before the call returns. */
  meron_status (*copy)(void *device, void *to, const void *from, uint64_t bytes, void *stream,
                       meron_backend_failure *failure);
  /* Sets bytes of the device to `value`. */
  meron_status (*fill)(void *device, void *to, uint8_t value, uint64_t bytes, void *stream,
                       meron_backend_failure *failure);
} meron_device_table;

/* Bytes of a sum of squares in memory of the device. Zeroed it is empty; kernels add to it, on any
 * streams and in any order, and what it comes to does not depend on the order. */
#define MERON_SQUARES_BYTES 552

/* A range that is converted, or added, to another. */
typedef struct {
  void *to;
  const void *from;
  uint64_t count; /* elements */
} meron_cast_task;

/* The numbers of an optimizer's step, as kernels/cpu/update.h has them. */
typedef struct {
  int32_t rule; /* meron_rule */
  uint32_t nesterov;
  uint32_t first_step;
  uint32_t reserved_0; /* 0 */
  double learning_rate;
  double beta1;
  double beta2;
  double epsilon;
  double weight_decay;
  double bias1;
  double bias2;
  double gradient_scale;
  double dampening;
} meron_update_step;

/* A range that is updated, in memory of the device. Ranges of one call do not overlap. */
typedef struct {
  float *values;    /* the f32 values */
  const float *sum; /* their gradient */
  void *states[2];  /* as many as the rule has */
  void *out;        /* the values in 16 bits; NULL: the f32 values are all */
  uint64_t count;   /* elements */
  uint64_t first;   /* of values[0] in its flat */
  uint64_t seed;    /* of random rounding: another one for each flat and step */
} meron_update_task;

/* The types in which a step's states are kept. */
typedef int32_t meron_state_type;
enum {
  MERON_STATE_F32 = 0,
  MERON_STATE_BF16 = 1,
  MERON_STATE_TYPE_FORCE_32_BITS = 0x7FFFFFFF
};

/* How arrays become blocks of integers that share a scale, as kernels/cpu/quant.h says. An encoded
 * array of n elements has the integers of all blocks first, then all scales:
 * ceil(n / block) * (block * bits / 8 + 4) bytes, aligned to 4. */
typedef struct {
  uint32_t bits;       /* 8 or 4 */
  uint32_t block;      /* elements: a power of two from 64 to 2048 */
  uint32_t stochastic; /* rounding; else to nearest */
  uint32_t hadamard;   /* 1: outliers are spread over 64 elements before rounding */
} meron_quant_format;

/* An array that is encoded. */
typedef struct {
  void *out;
  const void *in;
  float *residual; /* what was lost before is added, and what is lost kept there; or NULL */
  uint64_t count;  /* elements */
  uint64_t seed;   /* of stochastic rounding */
} meron_encode_task;

/* Arithmetic of a device, asked of a stream as copies are. Results have the bits of the functions
 * of kernels/cpu that have these names. Arrays are in memory of the device; those of pointers and
 * of tasks are the host's, and may be gone when the call returns. */
typedef struct {
  uint32_t struct_size; /* sizeof(meron_kernel_table) of the module */
  uint32_t reserved_0;  /* 0 */

  /* out = ((accumulate ? out : nothing) + in[0] + ... + in[count - 1]) * scale, element by element
   * and from left to right; +0 where that is the sum of nothing. The squares of the results are
   * added to `squares`, which may be NULL. */
  meron_status (*reduce)(void *device, float *out, uint32_t accumulate, const void *const *in,
                         uint32_t count, meron_dtype dtype, float scale, uint64_t elements,
                         void *squares, void *stream, meron_backend_failure *failure);
  /* Each task's elements are converted; `add`: and added to what is there. */
  meron_status (*cast)(void *device, const meron_cast_task *tasks, uint32_t count, meron_dtype to,
                       meron_dtype from, uint32_t add, void *stream,
                       meron_backend_failure *failure);
  meron_status (*update)(void *device, const meron_update_step *step,
                         const meron_update_task *tasks, uint32_t count, meron_state_type states,
                         meron_dtype out, void *stream, meron_backend_failure *failure);

  /* quantize: arrays of `in` are encoded. `beta`: what residuals keep of their old values. */
  meron_status (*encode)(void *device, const meron_quant_format *format,
                         const meron_encode_task *tasks, uint32_t count, meron_dtype in, float beta,
                         void *stream, meron_backend_failure *failure);
  /* dequantize: each task's `from` is an encoded array. */
  meron_status (*decode)(void *device, const meron_quant_format *format,
                         const meron_cast_task *tasks, uint32_t count, meron_dtype to, void *stream,
                         meron_backend_failure *failure);
  /* dequantize_sum: `reduce` of encoded arrays. */
  meron_status (*reduce_encoded)(void *device, const meron_quant_format *format, float *out,
                                 uint32_t accumulate, const void *const *in, uint32_t count,
                                 float scale, uint64_t elements, void *squares, void *stream,
                                 meron_backend_failure *failure);
} meron_kernel_table;

/* ---- Collectives between devices ------------------------------------------------------------- */

/* The name of a communicator that is to be opened: made by one rank, handed to all others. */
#define MERON_COLLECTIVE_ID_BYTES 128

/* The library of collectives that a module uses. Texts live as long as the process. */
typedef struct {
  uint32_t struct_size; /* sizeof(meron_collective_library), set by the caller */
  uint32_t version;     /* comparable: 22809 for 2.28.9; 0 where there is no such thing */
  const char *text;     /* "2.28.9" */
  const char *path;     /* of the file that it was loaded from; "" where there is none */
} meron_collective_library;

/* How a communicator is opened. */
typedef struct {
  uint32_t struct_size; /* sizeof(meron_collective_options), set by the caller */
  int32_t size;         /* ranks of the communicator */
  int32_t rank;         /* of these, the caller's */
  int32_t device_index; /* of the device that it sends from; -1: the calling thread's current one */
  int64_t timeout_ms;   /* that a call which waits waits at most; > 0 */
  uint32_t copy_engines; /* 1: what is gathered from and into windows is copied by engines, and
                            takes no multiprocessor from what computes, where the library can */
  uint32_t reserved_0;   /* 0 */
} meron_collective_options;

/* What is exchanged with one peer: bytes of this rank that go there, and bytes that come from
 * there. A side of 0 bytes is none, and its pointer is not looked at. */
typedef struct {
  int32_t peer;
  uint32_t reserved_0; /* 0 */
  const void *send;
  uint64_t send_bytes;
  void *receive;
  uint64_t receive_bytes;
} meron_exchange_piece;

/*
 * The functions of a library of collectives. `comm` is what `open` returned: one rank of a
 * communicator. It is made by `open` and ended by `close`, exactly once, whatever has failed.
 *
 * They move bytes and sum nothing: the engine sums by kernels of its own, in the order of ranks, so
 * that a sum has the same bits on every number of devices.
 *
 * Order. All ranks of a communicator call all_gather, exchange and groups of these in the same
 * order, and every rank makes every call, also one in which it has no bytes. What is moved is
 * memory of the rank's device. On each rank it is work of `stream`: it reads and writes behind what
 * was asked of the stream before, and what is asked of the stream afterwards comes behind it, on
 * that rank alone. Bytes that are sent may be changed, and those that were received be read, by
 * such work.
 *
 * Threads. One thread at a time calls functions of one communicator; poll and abort may be called
 * by any other thread at the same time, close by none. Functions of several communicators may be
 * called at the same time. Two communicators whose ranks share devices take turns in the same order
 * on every device: whoever uses both makes their streams wait for each other.
 *
 * Waiting. A call that asks for work returns when the work is on its stream. What may keep it is
 * written at each; it keeps it for timeout_ms at most, then MERON_E_TIMEOUT is returned. No call
 * waits for work to be done.
 *
 * Failures. A failure of a communicator is one of the communicator: from then on only abort and
 * close do something, the others return the failure again. Its text is the library's own. Whether
 * the device is usable after it, the device's own table says; `broken` is set only where the
 * library itself knows. The statuses, besides those written at the functions: MERON_E_ABORTED after
 * abort; MERON_E_TIMEOUT; MERON_E_PEER_DEAD where the library says that a peer or the link to it
 * has failed; MERON_E_MISMATCH where it says that ranks made different calls (most libraries do not
 * notice); MERON_E_STATE, before poll has returned MERON_OK once; MERON_E_IO for all else. A call
 * that is refused with MERON_E_ARGUMENT or MERON_E_STATE has asked for nothing, and the
 * communicator is as before.
 */
typedef struct {
  uint32_t struct_size; /* sizeof(meron_collective_table) of the module */
  uint32_t reserved_0;  /* 0 */

  /* Which library this is. Does not wait. */
  meron_status (*version)(meron_collective_library *out, meron_backend_failure *failure);

  /* A new name, to be written to the MERON_COLLECTIVE_ID_BYTES at `id`. One rank calls it, for each
   * communicator anew; that rank's process must live until all ranks are ready. Does not wait for
   * others; may look for the host's network interfaces. */
  meron_status (*unique_id)(void *id, meron_backend_failure *failure);

  /* Begins to open one rank of the communicator with that name. Returns at once; poll says when all
   * ranks have come. A failure leaves nothing that would have to be closed. The current device of
   * the calling thread is as before.
   * MERON_E_ARGUMENT: a number that cannot be; MERON_E_UNSUPPORTED: there is no device, the ranks
   * cannot reach each other by this library (several on one device with NCCL; several hosts with
   * the emulated one), or two copies of the library are in the process. MERON_E_DUPLICATE and
   * MERON_E_MISMATCH, from here or from poll, where the library notices that a rank is opened twice
   * or for another size. */
  meron_status (*open)(void **out, const void *id, const meron_collective_options *options,
                       meron_backend_failure *failure);

  /* How it is, without waiting. MERON_OK: ready, and nothing has failed so far; MERON_IN_PROGRESS:
   * still opening; else why it has failed, or will never be ready: as a call returned it, or as it
   * came about since. Whoever waits for a stream with work of the communicator asks this now and
   * then: work of which a peer has died may never be done. */
  meron_status (*poll)(void *comm, meron_backend_failure *failure);

  /* Every rank's `bytes`, the same number on each, come to `to` on every rank, in the order of
   * ranks: size * bytes. In place where from == to + rank * bytes; else the two do not overlap.
   * `from` may be changed and `to` read behind it on the stream. May wait, like group_end. */
  meron_status (*all_gather)(void *comm, const void *from, void *to, uint64_t bytes, void *stream,
                             meron_backend_failure *failure);

  /* Sends and receives at the same time, as one launch. What one rank sends to another, that one
   * receives: pieces of a pair of ranks meet in the order in which each of the two lists them, with
   * the same number of bytes. A piece whose peer is the rank itself is a copy on the device, of
   * send_bytes == receive_bytes. `pieces` are not read after the return; count may be 0. May wait,
   * like group_end.
   * MERON_E_ARGUMENT: a peer that is no rank, a piece for itself with two sizes, or bytes without a
   * pointer; failure->text has the piece's number. */
  meron_status (*exchange)(void *comm, const meron_exchange_piece *pieces, uint64_t count,
                           void *stream, meron_backend_failure *failure);

  /* What is called on `comm` from now on, until group_end, becomes one launch, on one stream: that
   * of the first call, and MERON_E_ARGUMENT for others. The calls in between only take notes: all
   * else, and every failure of the library, comes with group_end. Groups do not nest:
   * MERON_E_STATE. Does not wait. */
  meron_status (*group_begin)(void *comm, meron_backend_failure *failure);

  /* Launches them; with nothing in between, nothing. A group is ended also when a call in between
   * was refused: it then has the other calls.
   * Waits until the launch is on the stream. That is soon, but where the library first connects
   * the devices, as NCCL does in the first calls of each kind: then it waits until the peers have
   * made the same call. abort by another thread ends the wait: MERON_E_ABORTED. After
   * MERON_E_TIMEOUT the stream's contents are unknown: abort. */
  meron_status (*group_end)(void *comm, meron_backend_failure *failure);

  /* Tells the library of memory that is sent from, or received into, often: it can then do without
   * a copy of its own. The memory stays allocated until unregister_memory or close. Must not be
   * called within a group. May wait for the driver. MERON_E_UNSUPPORTED: the library cannot, or is
   * told not to; all else works without. */
  meron_status (*register_memory)(void **registration, void *comm, void *data, uint64_t bytes,
                                  meron_backend_failure *failure);
  /* Before the memory is given back, and when no work that uses it is under way. After abort it
   * does nothing: registrations have gone with the communicator. */
  meron_status (*unregister_memory)(void *comm, void *registration, meron_backend_failure *failure);

  /* Memory of the rank's device that lies in a window: `bytes` at *data, which the ranks reach in
   * each other's devices. Where an all-gather writes into windows, its `to` lies equally far from
   * *data on all ranks; most libraries do not notice if it does not. What engines are to copy is
   * read from a window as well, its own place in `to` for one. The content is undefined at first.
   * All ranks call it, with the same `bytes`, in the order of their other calls, and not within a
   * group. May wait for them. MERON_E_UNSUPPORTED: the library has no windows, or none between
   * these devices; MERON_E_NO_MEMORY. After a failure all ranks abort. */
  meron_status (*window_open)(void **window, void **data, void *comm, uint64_t bytes,
                              meron_backend_failure *failure);
  /* Gives the memory back, when no work that uses it is under way on any rank: before close, with
   * which what is left goes, and also after abort. */
  meron_status (*window_close)(void *comm, void *window, meron_backend_failure *failure);

  /* Ends what `count` communicators of one device have under way on this rank, done or not: work on
   * streams stops waiting for peers, and what it should have written is undefined; a call of
   * another thread that waits returns MERON_E_ABORTED. They end together, because a kernel of one
   * may keep the memory of another from being freed. Peers may hear of it, or wait on: every rank
   * aborts. Each must still be closed. Waits for the library to stop its own work on this rank, not
   * for peers, and at most 5 s: then it returns MERON_E_TIMEOUT, and the device is lost to this
   * process. A second abort of a communicator does nothing. */
  meron_status (*abort)(void *const *comms, uint64_t count, meron_backend_failure *failure);

  /* Ends the communicator, and frees `comm` whatever is returned. All ranks close it, each when it
   * has waited for its streams to come past the communicator's work. Waits for peers to close it as
   * well where the library does, for timeout_ms at most; after a failure or a timeout it aborts,
   * and returns that. A group that was not ended is dropped. After abort it returns MERON_OK at
   * once. */
  meron_status (*close)(void *comm, meron_backend_failure *failure);
} meron_collective_table;

/* What a module is. All that it points to lives as long as the process. */
typedef struct {
  uint32_t struct_size; /* sizeof(meron_backend), set by the caller */
  uint32_t abi;         /* the version of this page that the module was asked for and has */
  uint32_t version;     /* MERON_VERSION that it was built from */
  uint32_t reserved_0;  /* 0 */
  const char *name;     /* "cuda" */
  const char *summary;  /* what it found: versions of the driver and of libraries, for people */
  const meron_device_table *device;         /* NULL where the module is of no device */
  const meron_kernel_table *kernels;        /* of that device */
  const meron_collective_table *collective; /* NULL where it has no collectives */
} meron_backend;

/*
 * The exported function meron_backend_query of a module. The engine asks for the newest `abi` that
 * it knows, and for older ones where the module does not have it.
 *
 * Returns MERON_OK; MERON_E_VERSION (not this `abi`); MERON_E_UNSUPPORTED, where the module cannot
 * work in this process: no driver, one that is too old, no device. What is missing, and what to do
 * about it, is in failure->text. May be called again, by any thread.
 */
typedef meron_status (*meron_backend_query_fn)(uint32_t abi, meron_backend *out,
                                               meron_backend_failure *failure);

MERON_END_DECLS

#endif /* MERON_BACKEND_H */

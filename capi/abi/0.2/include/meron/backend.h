/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meron/backend.h: the interface between the engine and a module for a device, or for collectives
 * between devices. For authors of modules; trainers do not need it.
 *
 * A module is a shared library that the engine opens at run time (libmeron_cuda.so for NVIDIA's
 * GPUs, libmeron_nccl.so for collectives between them). It exports one function,
 * meron_backend_query, by which both agree on a version of this page; neither is linked with the
 * other. This is version MERON_BACKEND_ABI, which does not change: a later version adds fields at
 * the end of the tables.
 *
 * Rules for the functions of a table:
 *
 *   - They may be called by any thread, several at a time, for different streams.
 *   - Work on a stream is done in the order of the calls; a call does not wait for its work. Only
 *     functions that say so wait.
 *   - A NULL stream is the device's default one.
 *   - They do not change the calling thread's current device.
 *   - Exceptions must not leave them. A negative status is a failure. They describe it in *failure,
 *     which may be NULL.
 */
#ifndef MERON_BACKEND_H
#define MERON_BACKEND_H

#include "meron/base.h"

MERON_BEGIN_DECLS

/* The version of this page. */
#define MERON_BACKEND_ABI 1

/* Description of a failure. The callee fills all fields but struct_size. */
typedef struct {
  uint32_t struct_size; /* sizeof(meron_backend_failure) */
  int32_t code;         /* the device library's own number; 0: there is none */
  uint32_t broken;      /* 1: this process cannot use the device any more */
  uint32_t reserved_0;  /* 0 */
  char text[240];       /* one sentence, lower case, no full stop, NUL-terminated */
} meron_backend_failure;

/* The memory to which a pointer points. */
typedef int32_t meron_memory_kind;
enum {
  MERON_MEMORY_HOST = 0,    /* memory of the host that is not registered with the device */
  MERON_MEMORY_PINNED = 1,  /* of the host, registered with the device */
  MERON_MEMORY_DEVICE = 2,  /* of a device */
  MERON_MEMORY_MANAGED = 3, /* of both, moved by the driver */
};

/* Description of a device. */
typedef struct {
  uint32_t struct_size;  /* sizeof(meron_device_info), set by the caller */
  int32_t index;         /* among the devices of this process */
  char name[64];         /* of the model */
  char bus[32];          /* address on the bus: distinguishes the devices of a host */
  uint64_t memory_bytes; /* of its memory */
  uint64_t free_bytes;   /* of these, unused */
  uint32_t capability;   /* 90 for compute capability 9.0; 0 if there is none */
  uint32_t multiprocessors;
} meron_device_info;

/* Called by a thread of the device's library when a stream has reached this point. It must not call
 * any function of the table. */
typedef void (*meron_device_notify_fn)(void *user);

/* The functions of a device's module. `device` is what `open` returned. */
typedef struct {
  uint32_t struct_size; /* sizeof(meron_device_table) of the module */
  uint32_t reserved_0;  /* 0 */

  /* The number of devices. */
  meron_status (*count)(int32_t *out, meron_backend_failure *failure);
  /* Opens device `index`, or with -1 the calling thread's current one. May wait for the driver. */
  meron_status (*open)(void **out, int32_t index, meron_backend_failure *failure);
  /* Closes the device. Waits for pending work on streams of stream_create. */
  void (*close)(void *device);
  meron_status (*describe)(meron_device_info *out, void *device, meron_backend_failure *failure);

  /* Allocates memory of the device, aligned to 512 bytes, for later work on `stream`.
   * MERON_E_NO_MEMORY: there is none, and the device stays usable. */
  meron_status (*allocate)(void **out, void *device, uint64_t bytes, void *stream,
                           meron_backend_failure *failure);
  /* Frees memory after the queued work of `stream`. */
  meron_status (*release)(void *device, void *data, void *stream, meron_backend_failure *failure);
  /* Registers memory of the host, full pages, so that copies from and to it are asynchronous; until
   * it is unpinned it must stay mapped to the same pages. These are no failures of the device:
   * MERON_E_NO_MEMORY, MERON_E_UNSUPPORTED. */
  meron_status (*pin)(void *device, void *data, uint64_t bytes, meron_backend_failure *failure);
  void (*unpin)(void *device, void *data);
  /* The kind of memory at `data`, and the index of the device for memory of a device. */
  meron_status (*locate)(meron_memory_kind *kind, int32_t *index, void *device, const void *data,
                         meron_backend_failure *failure);

  /* Creates a stream for the engine; `urgent`: its work has priority. */
  meron_status (*stream_create)(void **out, void *device, uint32_t urgent,
                                meron_backend_failure *failure);
  void (*stream_destroy)(void *device, void *stream);
  /* MERON_E_ARGUMENT: a stream of another device; MERON_E_STATE: it is being captured into a graph,
   * and Meron's work cannot be captured. */
  meron_status (*stream_check)(void *device, void *stream, meron_backend_failure *failure);
  /* Waits until all queued work of the stream is done. */
  meron_status (*stream_synchronize)(void *device, void *stream, meron_backend_failure *failure);

  /* An event is a point in a stream's work. An event that was never recorded counts as reached. */
  meron_status (*event_create)(void **out, void *device, meron_backend_failure *failure);
  void (*event_destroy)(void *device, void *event);
  meron_status (*event_record)(void *device, void *event, void *stream,
                               meron_backend_failure *failure);
  /* MERON_OK: it is reached; MERON_IN_PROGRESS: not yet. */
  meron_status (*event_query)(void *device, void *event, meron_backend_failure *failure);
  /* Later work on `stream` waits for the event as it was last recorded. */
  meron_status (*stream_wait)(void *device, void *stream, void *event,
                              meron_backend_failure *failure);
  /* Calls `notify` when the queued work of the stream is done. */
  meron_status (*stream_notify)(void *device, void *stream, meron_device_notify_fn notify,
                                void *user, meron_backend_failure *failure);

  /* Copies between any two addresses that the device can access. Memory of the host that is not
   * pinned may be read, or written, before the call returns. */
  meron_status (*copy)(void *device, void *to, const void *from, uint64_t bytes, void *stream,
                       meron_backend_failure *failure);
  /* Sets bytes of the device to `value`. */
  meron_status (*fill)(void *device, void *to, uint8_t value, uint64_t bytes, void *stream,
                       meron_backend_failure *failure);
} meron_device_table;

/* Bytes of a sum of squares in memory of the device. All zeros are an empty sum; kernels add to it,
 * on any streams and in any order, and the result does not depend on the order. */
#define MERON_SQUARES_BYTES 552

/* A range to convert, or to add, to another. */
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

/* A range to update, in memory of the device. Ranges of one call do not overlap. */
typedef struct {
  float *values;    /* the f32 values */
  const float *sum; /* their gradient */
  void *states[2];  /* as many as the rule has */
  void *out;        /* the values in 16 bits; NULL: there are only the f32 values */
  uint64_t count;   /* elements */
  uint64_t first;   /* of values[0] in its flat */
  uint64_t seed;    /* of random rounding: another one for each flat and step */
} meron_update_task;

/* Storage types of a step's states. */
typedef int32_t meron_state_type;
enum {
  MERON_STATE_TYPE_F32 = 0,
  MERON_STATE_TYPE_BF16 = 1,
};

/* Format of arrays as blocks of integers with a common scale, as in kernels/cpu/quant.h. An encoded
 * array of n elements has the integers of all blocks first, then all scales:
 * ceil(n / block) * (block * bits / 8 + 4) bytes, aligned to 4. */
typedef struct {
  uint32_t bits;       /* 8 or 4 */
  uint32_t block;      /* elements: a power of two from 64 to 2048 */
  uint32_t stochastic; /* rounding; else to nearest */
  uint32_t hadamard;   /* 1: outliers are spread over 64 elements before rounding */
} meron_quant_format;

/* An array to encode. */
typedef struct {
  void *out;
  const void *in;
  float *residual; /* the previous error, which is added, and then the new error; or NULL */
  uint64_t count;  /* elements */
  uint64_t seed;   /* of stochastic rounding */
} meron_encode_task;

/* Arithmetic of a device, queued on a stream like copies. Results have the bits of the functions of
 * kernels/cpu with these names. Arrays are in memory of the device; arrays of pointers and of tasks
 * are in the host's, and may be freed when the call returns. */
typedef struct {
  uint32_t struct_size; /* sizeof(meron_kernel_table) of the module */
  uint32_t reserved_0;  /* 0 */

  /* out = ((accumulate ? out : nothing) + in[0] + ... + in[count - 1]) * scale, element by element
   * and from left to right; +0 where that is the sum of nothing. The squares of the results are
   * added to `squares`, which may be NULL. */
  meron_status (*reduce)(void *device, float *out, uint32_t accumulate, const void *const *in,
                         uint32_t count, meron_dtype dtype, float scale, uint64_t elements,
                         void *squares, void *stream, meron_backend_failure *failure);
  /* Converts each task's elements; `add`: and adds them to the old content. */
  meron_status (*cast)(void *device, const meron_cast_task *tasks, uint32_t count, meron_dtype to,
                       meron_dtype from, uint32_t add, void *stream,
                       meron_backend_failure *failure);
  meron_status (*update)(void *device, const meron_update_step *step,
                         const meron_update_task *tasks, uint32_t count, meron_state_type states,
                         meron_dtype out, void *stream, meron_backend_failure *failure);

  /* quantize: encodes the arrays `in`. `beta`: the fraction of the old residuals that is kept. */
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

/* Size of a communicator's name: one rank creates the name, and all ranks open it. */
#define MERON_COLLECTIVE_ID_BYTES 128

/* The library of collectives that a module uses. Texts live as long as the process. */
typedef struct {
  uint32_t struct_size; /* sizeof(meron_collective_library), set by the caller */
  uint32_t version;     /* comparable: 22809 for 2.28.9; 0 if there is none */
  const char *text;     /* "2.28.9" */
  const char *path;     /* of the loaded file; "" if there is none */
} meron_collective_library;

/* Options of a communicator. */
typedef struct {
  uint32_t struct_size; /* sizeof(meron_collective_options), set by the caller */
  int32_t size;         /* ranks of the communicator */
  int32_t rank;         /* of these, the caller's */
  int32_t device_index; /* of the device that it sends from; -1: the calling thread's current one */
  int64_t timeout_ms;   /* limit of every wait in a call; > 0 */
  uint32_t copy_engines; /* 1: if the library can, copy engines perform gathers from and into
                            windows, and leave the multiprocessors to other work */
  uint32_t reserved_0;   /* 0 */
} meron_collective_options;

/* An exchange with one peer: bytes to send to it, and bytes to receive from it. A direction with 0
 * bytes does nothing, and its pointer is ignored. */
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
 * communicator. `open` creates it and `close` ends it, exactly once, also after failures.
 *
 * They move bytes and sum nothing: the engine sums by its own kernels, in the order of ranks, so
 * that a sum has the same bits on every number of devices.
 *
 * Order. All ranks of a communicator call all_gather, exchange and groups of these in the same
 * order, and every rank makes every call, also one in which it has no bytes. They move memory of
 * the rank's device. On each rank a call is work of `stream`, ordered after the earlier work and
 * before the later work of that stream, on that rank alone. Later work may change the sent bytes
 * and read the received ones.
 *
 * Threads. One thread at a time calls functions of one communicator; poll and abort may be called
 * by any other thread at the same time, close by none. Functions of several communicators may be
 * called at the same time. Two communicators with ranks on the same devices take turns in the same
 * order on every device: a caller that uses both makes their streams wait for each other.
 *
 * Waiting. A call that requests work returns when the work is on its stream. Each function lists
 * its reasons to wait. It waits for timeout_ms at most, and then returns MERON_E_TIMEOUT. No call
 * waits for the completion of work.
 *
 * Failures. A failure breaks the communicator: from then on only abort and close have an effect,
 * and the other functions return the failure again. Its text is the library's own. The device's own
 * table reports if the device is still usable; `broken` is set only if the library itself knows.
 * The statuses, besides those at the functions: MERON_E_ABORTED after abort; MERON_E_TIMEOUT;
 * MERON_E_PEER_DEAD if the library reports that a peer or the link to it has failed;
 * MERON_E_MISMATCH if it reports that ranks made different calls (most libraries do not notice);
 * MERON_E_STATE, before poll has returned MERON_OK once; MERON_E_IO for all other failures. A call
 * that returns MERON_E_ARGUMENT or MERON_E_STATE has requested nothing, and the communicator is
 * unchanged.
 */
typedef struct {
  uint32_t struct_size; /* sizeof(meron_collective_table) of the module */
  uint32_t reserved_0;  /* 0 */

  /* Version and path of the library. Does not wait. */
  meron_status (*version)(meron_collective_library *out, meron_backend_failure *failure);

  /* Writes a new name to the MERON_COLLECTIVE_ID_BYTES at `id`. One rank calls it, anew for each
   * communicator; that rank's process must live until all ranks are ready. Does not wait for other
   * ranks; may search for the host's network interfaces. */
  meron_status (*unique_id)(void *id, meron_backend_failure *failure);

  /* Begins to open one rank of the communicator with that name. Returns at once; poll reports when
   * all ranks have arrived. After a failure there is nothing to close. The current device of the
   * calling thread does not change. MERON_E_ARGUMENT: an invalid number; MERON_E_UNSUPPORTED: there
   * is no device, the ranks cannot reach each other by this library (several on one device with
   * NCCL; several hosts with the emulated one), or two copies of the library are in the process.
   * MERON_E_DUPLICATE and MERON_E_MISMATCH, from here or from poll, if the library notices that a
   * rank is opened twice or for another size. */
  meron_status (*open)(void **out, const void *id, const meron_collective_options *options,
                       meron_backend_failure *failure);

  /* State of the communicator, without waiting. MERON_OK: ready, without failures so far;
   * MERON_IN_PROGRESS: still opening; else the failure, from an earlier call or since then. Call it
   * repeatedly while you wait for a stream with work of the communicator: if a peer has died, that
   * work may never complete. */
  meron_status (*poll)(void *comm, meron_backend_failure *failure);

  /* Gathers `bytes` bytes of every rank, the same number on each, into `to` on every rank, in the
   * order of ranks: size * bytes. In place if from == to + rank * bytes; else the two do not
   * overlap. Later work on the stream may change `from` and read `to`. May wait, like group_end. */
  meron_status (*all_gather)(void *comm, const void *from, void *to, uint64_t bytes, void *stream,
                             meron_backend_failure *failure);

  /* Sends and receives at the same time, as one launch. Each send has a receive of the same number
   * of bytes on the peer: the pieces of a pair of ranks match in the order in which each of the two
   * lists them. A piece with the rank itself as its peer is a copy on the device, of send_bytes ==
   * receive_bytes. `pieces` are not read after the return; count may be 0. May wait, like
   * group_end. MERON_E_ARGUMENT: a peer that is no rank, a piece for itself with two sizes, or
   * bytes without a pointer; failure->text has the piece's number. */
  meron_status (*exchange)(void *comm, const meron_exchange_piece *pieces, uint64_t count,
                           void *stream, meron_backend_failure *failure);

  /* The calls on `comm` until group_end become one launch, on the stream of the first call; another
   * stream is MERON_E_ARGUMENT. These calls only record: group_end does the work, and returns every
   * failure of the library. Groups do not nest: MERON_E_STATE. Does not wait. */
  meron_status (*group_begin)(void *comm, meron_backend_failure *failure);

  /* Launches the recorded calls, if there are any. It ends the group also if a call in between has
   * failed: the launch then has the other calls. Waits until the launch is on the stream. This is
   * soon, except when the library first connects the devices, as NCCL does in the first calls of
   * each kind: then it waits until the peers have made the same call. abort by another thread ends
   * the wait: MERON_E_ABORTED. After MERON_E_TIMEOUT the stream's contents are unknown: abort. */
  meron_status (*group_end)(void *comm, meron_backend_failure *failure);

  /* Registers memory for frequent sends or receives with the library, which can then avoid a copy.
   * The memory stays allocated until unregister_memory or close. Must not be called within a group.
   * May wait for the driver. MERON_E_UNSUPPORTED: the library cannot register it, or a setting
   * forbids it; all other functions still work. */
  meron_status (*register_memory)(void **registration, void *comm, void *data, uint64_t bytes,
                                  meron_backend_failure *failure);
  /* Call it before the memory is freed, and while no pending work uses it. After abort it does
   * nothing: the registrations ended with the communicator. */
  meron_status (*unregister_memory)(void *comm, void *registration, meron_backend_failure *failure);

  /* Allocates memory of the rank's device in a window: `bytes` at *data, which the ranks can access
   * on each other's devices. If an all-gather writes into windows, its `to` must have the same
   * offset from *data on all ranks; most libraries do not notice a difference. For copies by
   * engines, the source is in a window as well, for example the rank's own position in `to`. The
   * content is undefined at first. All ranks call it, with the same `bytes`, in the order of their
   * other calls, and not within a group. May wait for them. MERON_E_UNSUPPORTED: the library has no
   * windows, or none between these devices; MERON_E_NO_MEMORY. After a failure all ranks abort. */
  meron_status (*window_open)(void **window, void **data, void *comm, uint64_t bytes,
                              meron_backend_failure *failure);
  /* Frees the memory, while no pending work on any rank uses it: before close, which frees the
   * rest, and also after abort. */
  meron_status (*window_close)(void *comm, void *window, meron_backend_failure *failure);

  /* Ends all pending work of `count` communicators of one device on this rank: work on streams
   * stops waiting for peers, and its output is undefined; a waiting call of another thread returns
   * MERON_E_ABORTED. They end together, because a kernel of one may keep the memory of another from
   * being freed. Peers may notice it, or continue to wait: every rank aborts. Each must still be
   * closed. Waits for the library to stop its own work on this rank, not for peers, and at most 5
   * s: then it returns MERON_E_TIMEOUT, and the device is lost to this process. A second abort of a
   * communicator does nothing. */
  meron_status (*abort)(void *const *comms, uint64_t count, meron_backend_failure *failure);

  /* Ends the communicator, and frees `comm` whatever it returns. All ranks close it, each after its
   * streams have completed the communicator's work. Waits for peers to close it as well if the
   * library does, for timeout_ms at most; after a failure or a timeout it aborts, and returns that.
   * A group that was not ended is dropped. After abort it returns MERON_OK at once. */
  meron_status (*close)(void *comm, meron_backend_failure *failure);
} meron_collective_table;

/* Description of a module. All its pointers are valid as long as the process. */
typedef struct {
  uint32_t struct_size; /* sizeof(meron_backend), set by the caller */
  uint32_t abi;         /* the requested version of this page, which the module has */
  uint32_t version;     /* MERON_VERSION that it was built from */
  uint32_t reserved_0;  /* 0 */
  const char *name;     /* "cuda" */
  const char *summary;  /* versions of the driver and of libraries that it found, for people */
  const meron_device_table *device;         /* NULL if the module is of no device */
  const meron_kernel_table *kernels;        /* of that device */
  const meron_collective_table *collective; /* NULL if it has no collectives */
} meron_backend;

/*
 * The exported function meron_backend_query of a module. The engine requests the newest `abi` that
 * it supports, and older ones if the module does not have it.
 *
 * Returns MERON_OK; MERON_E_VERSION (not this `abi`); MERON_E_UNSUPPORTED if the module cannot work
 * in this process: no driver, one that is too old, no device. failure->text names the missing part
 * and the remedy. May be called again, by any thread.
 */
typedef meron_status (*meron_backend_query_fn)(uint32_t abi, meron_backend *out,
                                               meron_backend_failure *failure);

MERON_END_DECLS

#endif /* MERON_BACKEND_H */

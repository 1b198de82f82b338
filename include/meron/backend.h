/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meron/backend.h: what the engine asks of a device, and what a module answers. For authors of
 * modules; trainers do not need it.
 *
 * A module is a shared library that the engine opens at run time (libmeron_cuda.so for NVIDIA's
 * GPUs). It exports one function, meron_backend_query, by which both agree on a version of this
 * page; neither is linked with the other. What is written here is version MERON_BACKEND_ABI, and
 * does not change: a later version adds fields at the end of the tables.
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
  uint64_t free_bytes;   /* of which nobody uses */
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
} meron_kernel_table;

/* What a module is. All that it points to lives as long as the process. */
typedef struct {
  uint32_t struct_size; /* sizeof(meron_backend), set by the caller */
  uint32_t abi;         /* the version of this page that the module was asked for and has */
  uint32_t version;     /* MERON_VERSION that it was built from */
  uint32_t reserved_0;  /* 0 */
  const char *name;     /* "cuda" */
  const char *summary;  /* what it found: versions of the driver and of libraries, for people */
  const meron_device_table *device;  /* NULL where the module is of no device */
  const meron_kernel_table *kernels; /* of that device */
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

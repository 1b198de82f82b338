/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meron/context.h: the context: this rank's engine. It owns the arena, the transport and every
 * object that it creates.
 */
#ifndef MERON_CONTEXT_H
#define MERON_CONTEXT_H

#include "meron/base.h"
#include "meron/future.h"
#include "meron/plan.h"
#include "meron/transport.h"

MERON_BEGIN_DECLS

/* A context. A value; 0 is null. */
typedef struct {
  uint64_t id;
} meron_context;

/* Levels of a log message. */
typedef int32_t meron_log_level;
enum {
  MERON_LOG_ERROR = 0,
  MERON_LOG_WARNING = 1,
  MERON_LOG_INFO = 2,
};

/*
 * Receives log messages: formatted, `length` bytes, NUL-terminated, valid until the callback
 * returns. May be called from any thread that is inside a call of this library. It may only look
 * and release: see the rule of callbacks in meron/meron.h. `user` is used until meron_context_close
 * has returned.
 */
typedef void (*meron_log_fn)(void *user, meron_log_level level, const char *message, size_t length);

/*
 * Called about ten times a second while a call waits. A non-zero result ends the wait with
 * MERON_E_CANCELLED: nothing was begun, or the operation continues. It may only look and release:
 * see the rule of callbacks in meron/meron.h. `user` is used until meron_context_close has
 * returned.
 */
typedef int32_t (*meron_should_stop_fn)(void *user);

/*
 * Allocates memory of a device: `bytes` bytes aligned to 256, for later work on `stream`. NULL:
 * there is none. Like meron_device_release_fn, it may be called by any thread that is inside a call
 * of this library. It may only look and release: see the rule of callbacks in meron/meron.h. It
 * must not wait for work of the device.
 */
typedef void *(*meron_device_allocate_fn)(void *user, uint64_t bytes, void *stream);

/*
 * Frees such memory: queued work of `stream` may still use it. Memory that a finalizer releases is
 * freed at the next call on the context.
 */
typedef void (*meron_device_release_fn)(void *user, void *data, uint64_t bytes, void *stream);

/* The trainer's own allocator of device memory, a framework's cache for example. */
typedef struct {
  uint32_t struct_size; /* sizeof(meron_allocator) */
  uint32_t reserved_0;  /* must be 0 */
  meron_device_allocate_fn allocate;
  meron_device_release_fn release;
  void *user;
} meron_allocator;

/* Initial value of a meron_allocator. */
#define MERON_ALLOCATOR_INIT \
  { MERON_SIZEOF_U32(meron_allocator), 0, NULL, NULL, NULL }

/**
 * Fills the first `struct_size` bytes of *allocator with zeros and its size (for languages without
 * macros).
 * Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT.
 */
MERON_API MERON_NODISCARD meron_status meron_allocator_init(meron_allocator *allocator,
                                                            size_t struct_size, meron_error **err);

/* Options of a context. Fill by meron_context_options_init or MERON_CONTEXT_OPTIONS_INIT. */
typedef struct {
  uint32_t struct_size;    /* sizeof(meron_context_options) */
  uint32_t header_version; /* MERON_VERSION of the caller's headers */
  int32_t rank;       /* -1: from the environment (meron run, torchrun, Slurm, Open MPI, PMI) */
  int32_t world_size; /* -1: from the environment; without one: 1 */
  const char
      *transport;     /* "self", "local", "shm", "mpi", "custom", "cluster"; NULL or "auto":
                         custom if that is given, self for one rank, mpi under mpirun if neither a token
                         nor MERON_STORE is given, else shm. "cluster": ranks of a node share memory,
                         and `custom` connects the nodes; "mpi": MPI connects them */
  const char *job;    /* local: ranks of one process with an equal job meet; NULL: "default".
                         In a directory MERON_STORE: the job's name among others'; NULL:
                         MERON_JOB, or the launcher's name */
  const char *token;  /* shm: 64 hexadecimal digits, the same on all ranks; NULL: from the
                         descriptor MERON_TOKEN_FD or from the variable MERON_TOKEN; if there is
                         none, ranks meet in the directory that the variable MERON_STORE names */
  int64_t timeout_ns; /* deadline of every operation (see future.h); 0 or -1: 600 s */
  uint64_t host_memory_limit; /* bytes that this rank may allocate; 0: only the host's limit */
  uint64_t arena_reserve;     /* bytes of address space, twice per window; 0: the host's memory */
  uint32_t threads;           /* for compute on this rank; 0: cores / ranks on this host */
  uint32_t reserved_0;        /* must be 0 */
  meron_plan plan;            /* null: "zero3" */
  meron_log_fn log;           /* NULL: warnings and errors go to stderr */
  void *log_user;
  meron_should_stop_fn should_stop; /* NULL: waits end by completion or deadline only */
  void *should_stop_user;
  const meron_transport
      *custom; /* transport "custom" and "cluster"; read while the context opens; else NULL */
  const char *device; /* that this rank computes on: "cuda" (the calling thread's current one),
                         "cuda:1"; "emulated": memory of the host and threads, for tests without a
                         device. NULL or "": the host. Views of gathers, and of schedules that ask
                         for it, are then in the device's memory, and meron_source.data may be. All
                         other views stay in the host's: of gradients, updates and states */
  const meron_allocator
      *allocator; /* of the device's memory; read while the context opens, its `user` is used until
                     the context and all its objects are gone; NULL: a pool of Meron's own */
} meron_context_options;

/* Initial value of a meron_context_options. */
#define MERON_CONTEXT_OPTIONS_INIT                                                                \
  {                                                                                               \
    MERON_SIZEOF_U32(meron_context_options), MERON_VERSION, -1, -1, NULL, NULL, NULL, 0, 0, 0, 0, \
        0, {0}, NULL, NULL, NULL, NULL, NULL, NULL, NULL                                          \
  }

/**
 * Fills the first `struct_size` bytes of *options with defaults (for languages without macros).
 * Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT.
 */
MERON_API MERON_NODISCARD meron_status meron_context_options_init(meron_context_options *options,
                                                                  size_t struct_size,
                                                                  meron_error **err);

/**
 * Opens this rank's context and connects it to the other ranks.
 * @param out      receives the context.
 * @param options  NULL for the defaults.
 * Ownership: the caller closes *out. Blocks: until all ranks have arrived, at most the deadline.
 * Threads: any. Errors: MERON_E_ARGUMENT (rank beyond the world, unknown transport), MERON_E_AUTH
 * (token missing or wrong), MERON_E_TIMEOUT (names the missing ranks), MERON_E_VERSION,
 * MERON_E_NO_MEMORY, MERON_E_IO, MERON_E_NOT_FOUND (no directory MERON_STORE), MERON_E_UNSUPPORTED
 * (no transport connects the ranks' hosts; the device's module cannot be loaded or cannot work
 * here, with the reason), MERON_E_DEVICE (it has failed), MERON_E_DUPLICATE (a rank arrived twice),
 * or the error with which calls of a faster rank have broken the world.
 */
MERON_API MERON_NODISCARD meron_status meron_context_open(meron_context *out,
                                                          const meron_context_options *options,
                                                          meron_error **err);

/**
 * Closes the context: pending operations are cancelled, all its handles become stale, views become
 * invalid, and after the return nothing touches memory that the caller passed to operations. DLPack
 * tensors stay readable. Nothing uses log_user and should_stop_user afterwards: it waits for
 * callbacks that run on other threads. If a callback closes a context, it waits for no callback,
 * and the pointers are used until that callback has returned. Local: it does not wait for peers,
 * but first for a pending save of a checkpoint. If should_stop ends that wait, the save is
 * abandoned and leaves no checkpoint. If the last save has failed and no wait returned its error,
 * the log has it. Peers that still need this rank get MERON_E_PEER_CLOSED: for operations that it
 * has not begun, or that it has begun and not waited for. Once it has waited for all that it began,
 * it may close without a barrier. Another context may be opened afterwards in the same process.
 * Blocks: on such a save and on such callbacks, without a deadline; else until calls of other
 * threads on this context have ended, whose waits it ends. Threads: any. Errors: MERON_E_HANDLE,
 * MERON_E_STALE (closed already), MERON_E_STATE (from an allocator or a transport), MERON_E_FORKED.
 */
MERON_API meron_status meron_context_close(meron_context context, meron_error **err);

/**
 * This rank, 0 to world size - 1.
 * Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE,
 * MERON_E_FORKED.
 */
MERON_API MERON_NODISCARD meron_status meron_context_rank(int32_t *out, meron_context context,
                                                          meron_error **err);

/**
 * The number of ranks.
 * Blocks: never. Threads: any. Errors: as meron_context_rank.
 */
MERON_API MERON_NODISCARD meron_status meron_context_world_size(int32_t *out, meron_context context,
                                                                meron_error **err);

/**
 * The name of the transport in use: "self", "local", "shm", or that of a custom one.
 * Ownership: the context, until it is closed. Blocks: never. Threads: any. Errors: as
 * meron_context_rank.
 */
MERON_API MERON_NODISCARD meron_status meron_context_transport(const char **out,
                                                               meron_context context,
                                                               meron_error **err);

/**
 * The plan that the context was opened with, as JSON that meron_plan_parse reads back to an equal
 * plan; "zero3" if it was opened without one.
 * Ownership: the caller frees *out with meron_string_free. Blocks: never. Threads: any. Errors: as
 * meron_context_rank.
 */
MERON_API MERON_NODISCARD meron_status meron_context_plan_json(char **out, meron_context context,
                                                               meron_error **err);

/**
 * Advances every operation of this context that can advance, without waiting. Waits do the same;
 * a trainer that computes for long between begin and wait may call it in between. Clears the
 * descriptor of meron_context_event_fd first.
 * Blocks: never on peers; computes. Threads: any. Errors: as meron_future_wait.
 */
MERON_API MERON_NODISCARD meron_status meron_context_progress(meron_context context,
                                                              meron_error **err);

/**
 * A descriptor for event loops (epoll, poll, asyncio, tokio): it becomes readable when a future of
 * the context may have advanced. A thread of the engine writes to it when a peer has done
 * something, and at least 50 times a second while an operation is pending; it advances no
 * operation. In the loop, call meron_context_progress, which clears the descriptor, or read its 8
 * bytes; then poll the futures. Clear it before the polls: what comes later makes it readable
 * again. Poll a future once after its begin, too: if it has ended by then, no sign follows. Futures
 * of io.h are of no context and have none.
 * @param out  receives the descriptor, an eventfd (Linux): nonblocking, closed on exec, the same at
 *             each call. Watch it for reading, level-triggered or edge-triggered; write nothing.
 * Ownership: the context's: do not close it. The close of the context makes it readable and closes
 * it: take it out of the loop before. A child after fork shares it with its parent: it must neither
 * read nor watch it. Blocks: never. Threads: any; all watchers share one count, so one loop should
 * watch it. Errors: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE, MERON_E_CLOSED,
 * MERON_E_FORKED, MERON_E_NO_MEMORY (no thread), MERON_E_IO (no descriptor is left).
 */
MERON_API MERON_NODISCARD meron_status meron_context_event_fd(int32_t *out, meron_context context,
                                                              meron_error **err);

/* Counters since the context was opened, and the memory in use now, in bytes. */
typedef struct {
  uint32_t struct_size;         /* sizeof(meron_stats), as the INIT macro sets it */
  uint32_t reserved_0;          /* 0 */
  uint64_t gather_mapped_bytes; /* shards of peers read in place, or fetched by devices */
  uint64_t gather_copied_bytes; /* parts of peers copied */
  uint64_t reduce_bytes;        /* gradients read from peers */
  uint64_t collective_bytes;    /* read from peers by broadcast and all-reduce */
  uint64_t operations;          /* collectives begun */
  uint64_t wait_ns;             /* nanoseconds spent waiting for peers */
  uint64_t param_bytes;         /* of values, held now */
  uint64_t gradient_bytes;  /* counted from meron_unit_create on, allocated by the first gradient */
  uint64_t optimizer_bytes; /* of optimizer states, held now */
  uint64_t staging_bytes;   /* of staging buffers, held now */
  uint64_t control_bytes;   /* of the control data that keeps the ranks in step, held now */
  uint64_t peak_bytes;      /* maximum of param + gradient + optimizer + staging */
  uint64_t arena_pages_bytes;       /* bytes of pages in this rank's arena */
  uint64_t inter_node_gather_bytes; /* gathered from ranks that share no memory, as on the wire */
  uint64_t inter_node_reduce_bytes; /* reduced from such ranks, likewise */
  uint64_t nvme_read_bytes;         /* read from this rank's file on tier nvme */
  uint64_t nvme_written_bytes;      /* written to it */
  uint64_t nvme_bytes;              /* of that file, in use now */
  uint64_t device_up_bytes;         /* copied from the host to this rank's device */
  uint64_t device_down_bytes;       /* copied from it to the host */
  uint64_t device_bytes;            /* on the device at all times: entries of tier device */
} meron_stats;

/* A meron_stats for the library to fill. */
#define MERON_STATS_INIT                                                                          \
  {                                                                                               \
    MERON_SIZEOF_U32(meron_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, \
        0                                                                                         \
  }

/**
 * Reads the counters.
 * @param out  struct_size set by the caller; fields beyond the library's own are set to 0.
 * Blocks: never. Threads: any. Errors: as meron_context_rank.
 */
MERON_API MERON_NODISCARD meron_status meron_context_stats(meron_stats *out, meron_context context,
                                                           meron_error **err);

/* The plan's predictions for this rank and its current units, in bytes. */
typedef struct {
  uint32_t struct_size;     /* sizeof(meron_prediction), as the INIT macro sets it */
  uint32_t reserved_0;      /* 0 */
  uint64_t param_bytes;     /* of values, held */
  uint64_t gradient_bytes;  /* of gradients, held */
  uint64_t optimizer_bytes; /* of optimizer states, held */
  uint64_t peak_bytes;      /* without messages in flight between nodes, and without up to 32 MiB if
                               these, or values of tier nvme, are copied to a device */
  uint64_t gather_mapped_bytes; /* as in meron_stats, per optimizer step; so are those below */
  uint64_t gather_copied_bytes; /* parts of peers copied */
  uint64_t reduce_bytes;        /* gradients read from peers */
  uint64_t secondary_partition_bytes; /* of params, from the first gather to the update (of frozen
                                         ones permanently), on top of param_bytes and within
                                         peak_bytes */
  uint64_t inter_node_gather_bytes;   /* gathered from ranks that share no memory, as on the wire */
  uint64_t inter_node_reduce_bytes;   /* reduced from such ranks, likewise */
  uint64_t nvme_read_bytes;           /* read from this rank's file on tier nvme */
  uint64_t nvme_written_bytes;        /* written to it */
  uint64_t nvme_bytes;                /* in use there, at all times */
  uint64_t device_bytes; /* as in meron_stats. If ranks cannot exchange on their devices, these lack
                            the sums of gradients, which this figure contains */
} meron_prediction;

/* A meron_prediction for the library to fill. */
#define MERON_PREDICTION_INIT \
  { MERON_SIZEOF_U32(meron_prediction), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/**
 * Predicts memory and traffic of this rank from the plan and the current units. The counters of
 * meron_stats grow by exactly these bytes per step of that workload.
 * @param workload  its `ranks` and `optimizer_states` are ignored in favour of the world's size and
 *                  the optimizer's rule.
 * Blocks: never. Threads: any. Errors: as meron_context_rank, MERON_E_ARGUMENT.
 */
MERON_API MERON_NODISCARD meron_status meron_context_predict(meron_prediction *out,
                                                             meron_context context,
                                                             const meron_workload *workload,
                                                             meron_error **err);

/**
 * The flight recorder: the last operations (up to 1,024) of every rank of the world, as JSON. Works
 * on a broken group too.
 * Ownership: the caller frees *out with meron_string_free. Blocks: never. Threads: any.
 * Errors: as meron_context_rank.
 */
MERON_API MERON_NODISCARD meron_status meron_context_flight_record(char **out,
                                                                   meron_context context,
                                                                   meron_error **err);

MERON_END_DECLS

#endif /* MERON_CONTEXT_H */

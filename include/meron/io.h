/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meron/io.h: reads and writes files past the page cache, beside the threads that compute, like
 * DeepSpeed's DeepNVMe. Needs no context: it belongs to this process, and has no ranks.
 */
#ifndef MERON_IO_H
#define MERON_IO_H

#include "meron/base.h"
#include "meron/future.h"

MERON_BEGIN_DECLS

/* A queue to the kernel for reads and writes of files, and the threads that serve it. A value; 0 is
 * null. */
typedef struct {
  uint64_t id;
} meron_io;

/* Pinned memory: page-aligned, and registered with the kernel if the kernel permits it. A value; 0
 * is null. */
typedef struct {
  uint64_t id;
} meron_io_buffer;

/* The interface that moves the bytes. */
typedef int32_t meron_io_backend;
enum {
  MERON_IO_BACKEND_AUTO = 0,    /* io_uring if the host allows it, else threads */
  MERON_IO_BACKEND_URING = 1,   /* io_uring */
  MERON_IO_BACKEND_THREADS = 2, /* threads of this process that call pread and pwrite */
};

/* Options of an io. */
typedef struct {
  uint32_t struct_size; /* sizeof(meron_io_options) */
  meron_io_backend backend;
  uint32_t block_bytes;    /* of one call of the kernel: a multiple of 4096; default 1 MiB */
  uint32_t depth;          /* pending calls of io_uring, 1 to 4096; default 32 */
  uint32_t threads;        /* of the backend of threads, 1 to 256: as many calls at a time */
  uint32_t single_submit;  /* 1: submit each call to the kernel alone; default 0: together */
  uint32_t overlap_events; /* default 1; 0: the next calls begin after the last ones have ended */
  uint32_t reserved_0;     /* must be 0 */
  int64_t timeout_ns;      /* a wait fails after this time without any transfer; 0 or -1: 600 s */
} meron_io_options;

/* Initial value of a meron_io_options. */
#define MERON_IO_OPTIONS_INIT \
  { MERON_SIZEOF_U32(meron_io_options), MERON_IO_BACKEND_AUTO, 1 << 20, 32, 1, 0, 1, 0, 0 }

/**
 * Fills the first `struct_size` bytes of *options with the initial value (for languages without
 * macros).
 * Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT.
 */
MERON_API MERON_NODISCARD meron_status meron_io_options_init(meron_io_options *options,
                                                             size_t struct_size, meron_error **err);

/**
 * Opens a queue to the kernel, with the threads that serve it.
 * @param options  NULL for the defaults.
 * Ownership: the caller closes *out. Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT (a value
 * out of range), MERON_E_UNSUPPORTED (MERON_IO_BACKEND_URING if the host forbids io_uring: the
 * message names the cause), MERON_E_NO_MEMORY, MERON_E_FORKED.
 */
MERON_API MERON_NODISCARD meron_status meron_io_open(meron_io *out, const meron_io_options *options,
                                                     meron_error **err);

/**
 * Reads `bytes` bytes of a file from `offset` on, and waits for them. Offset, length and memory
 * need no alignment. Full pages bypass the page cache if the file system allows it and memory and
 * file have the same alignment, for example both at multiples of the page. The rest uses the page
 * cache.
 * @param path    of a regular file or a block device, in the host's notation.
 * @param data    `bytes` bytes of the caller's memory; may be NULL if `bytes` is 0.
 * @param offset  in bytes from the beginning of the file.
 * Ownership: the memory stays the caller's; after MERON_E_TIMEOUT the drive may still write to it,
 * until meron_io_wait or meron_io_close has returned. Blocks: on the drive, until the options'
 * timeout_ns has passed without any transfer, and on the file system while the file is opened.
 * Threads: any; no pending request may write the same bytes. Errors: MERON_E_NOT_FOUND, MERON_E_IO
 * (the file is too short: the message has the file, the offset, the requested bytes and the
 * available ones; or the error of the drive), MERON_E_ARGUMENT (no regular file), MERON_E_TIMEOUT,
 * MERON_E_NO_MEMORY, MERON_E_CLOSED (meanwhile), MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
 */
MERON_API MERON_NODISCARD meron_status meron_io_read(meron_io io, const char *path, void *data,
                                                     uint64_t bytes, uint64_t offset,
                                                     meron_error **err);

/**
 * Writes `bytes` bytes to a file from `offset` on, and waits until the kernel has accepted them.
 * Creates the file if it does not exist, with mode 0666 less the umask. Other content of the file
 * stays, and the file is not truncated. Data that must survive a loss of power needs a sync by the
 * caller. A file that has to grow gets its disk space before anything is written.
 * @param path    as meron_io_read.
 * @param data    `bytes` bytes, only read; may be NULL if `bytes` is 0.
 * @param offset  as meron_io_read; earlier bytes that were never written read as 0.
 * Ownership: the memory stays the caller's; after MERON_E_TIMEOUT the drive may still read it, as
 * meron_io_read. Blocks: as meron_io_read. Threads: any; no pending request may read or write the
 * same bytes. Errors: as meron_io_read, MERON_E_NO_SPACE (a file that had to grow keeps its size),
 * MERON_E_NOT_FOUND if the directory does not exist.
 */
MERON_API MERON_NODISCARD meron_status meron_io_write(meron_io io, const char *path,
                                                      const void *data, uint64_t bytes,
                                                      uint64_t offset, meron_error **err);

/**
 * Begins a read. Requests begin in the order of the calls, run at the same time and end in any
 * order: wait for a request before you begin another that depends on it. A request is a future. A
 * wait for it ends also after the options' timeout_ns without any transfer (MERON_E_TIMEOUT: it is
 * still pending), with MERON_E_IO or MERON_E_NO_SPACE (both name file, offset and bytes;
 * meron_io_wait does not report them again), or with MERON_E_CLOSED (the io was closed before it
 * ended). A pending request continues after its release: its memory must stay valid, and
 * meron_io_wait or meron_io_close returns its result.
 * @param out     receives the request.
 * @param path    as meron_io_read.
 * @param data    as meron_io_read.
 * @param offset  as meron_io_read.
 * Ownership: the caller releases *out; the memory must stay until the request has ended (the memory
 * of a meron_io_buffer does so by itself). Blocks: on the file system while the file is opened,
 * never on the transfer. Threads: any. Errors: as meron_io_read; a wait returns the errors of the
 * drive.
 */
MERON_API MERON_NODISCARD meron_status meron_io_read_begin(meron_future *out, meron_io io,
                                                           const char *path, void *data,
                                                           uint64_t bytes, uint64_t offset,
                                                           meron_error **err);

/**
 * Begins a write. This call creates the file and lets it grow.
 * @param out     receives the request.
 * @param path    as meron_io_write.
 * @param data    as meron_io_write.
 * @param offset  as meron_io_write.
 * Ownership: as meron_io_read_begin; the memory must not change until the request has ended.
 * Blocks: as meron_io_read_begin. Threads: any. Errors: as meron_io_write; a wait returns the
 * errors of the drive.
 */
MERON_API MERON_NODISCARD meron_status meron_io_write_begin(meron_future *out, meron_io io,
                                                            const char *path, const void *data,
                                                            uint64_t bytes, uint64_t offset,
                                                            meron_error **err);

/**
 * Waits for all requests that no call has waited for, also for those with a released handle.
 * @param timeout_ns  nanoseconds; MERON_TIMEOUT_DEFAULT: as long as transfers progress; 0: only
 *                    polls.
 * Returns MERON_IN_PROGRESS if timeout_ns passed first; the requests continue. Blocks: on the
 * drive, until the options' timeout_ns has passed without any transfer. Threads: any. Errors: after
 * all have ended, their first error, which names its file and the number of other failures;
 * MERON_E_TIMEOUT: no transfer progresses, and they are still pending; MERON_E_HANDLE,
 * MERON_E_STALE, MERON_E_FORKED.
 */
MERON_API MERON_NODISCARD meron_status meron_io_wait(meron_io io, int64_t timeout_ns,
                                                     meron_error **err);

/* Information about an io. */
typedef struct {
  uint32_t struct_size;     /* sizeof(meron_io_info), as the INIT macro sets it */
  meron_io_backend backend; /* in use: MERON_IO_BACKEND_URING or MERON_IO_BACKEND_THREADS */
  uint32_t block_bytes;     /* these as in meron_io_options */
  uint32_t depth;
  uint32_t threads;
  uint32_t single_submit;
  uint32_t overlap_events;
  uint32_t reserved_0;    /* 0 */
  uint64_t bytes_read;    /* by requests that have succeeded */
  uint64_t bytes_written; /* likewise */
  uint64_t calls;         /* of the kernel, completed */
  uint64_t direct_calls;  /* of these, past the page cache */
  uint64_t requests;      /* reads and writes that were begun, also blocking ones */
  uint64_t pending;       /* of these, pending or not waited for */
  uint64_t buffer_bytes;  /* of all existing buffers */
} meron_io_info;

/* A meron_io_info for the library to fill. */
#define MERON_IO_INFO_INIT \
  { MERON_SIZEOF_U32(meron_io_info), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/**
 * Reads the information about an io.
 * @param out  struct_size set by the caller.
 * Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE,
 * MERON_E_FORKED.
 */
MERON_API MERON_NODISCARD meron_status meron_io_get_info(meron_io_info *out, meron_io io,
                                                         meron_error **err);

/**
 * Describes the speed for people, one line per fact: the backend and the kernel's grants, the
 * reason if it is not a faster one, and the files that use the page cache with the reason.
 * Ownership: the caller frees *out with meron_string_free. Blocks: never. Threads: any. Errors:
 * MERON_E_ARGUMENT, MERON_E_NO_MEMORY, MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
 */
MERON_API MERON_NODISCARD meron_status meron_io_describe(char **out, meron_io io,
                                                         meron_error **err);

/**
 * Closes the io after pending requests have ended; its handle is stale at once. Requests and
 * buffers stay until they are released. Ownership: memory of requests is the caller's again, unless
 * this returns MERON_E_CLOSED or MERON_E_TIMEOUT: a drive has not returned some of it and may still
 * use it. Blocks: on the drive, at most 5 s, or 10 s if it does not answer at all. Threads: any,
 * also a finalizer's. Errors: MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED, and, although the io
 * is closed, the first error of requests that no call has waited for.
 */
MERON_API meron_status meron_io_close(meron_io io, meron_error **err);

/**
 * Allocates pinned memory of `bytes` bytes, which read as 0. Reads and writes are fastest with it,
 * although they accept any memory. Ownership: the caller releases *out. Blocks: until the host has
 * allocated the memory. Threads: any. Errors: MERON_E_ARGUMENT (no bytes), MERON_E_NO_MEMORY (the
 * host, its cgroup or a limit), MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED. If the kernel does
 * not register it, it works unregistered (meron_io_describe has the reason).
 */
MERON_API MERON_NODISCARD meron_status meron_io_buffer_create(meron_io_buffer *out, meron_io io,
                                                              uint64_t bytes, meron_error **err);

/* Information about a buffer. */
typedef struct {
  uint32_t struct_size; /* sizeof(meron_io_buffer_info), as the INIT macro sets it */
  uint32_t registered;  /* 1: the kernel has it pinned; 0: it pins it at each call */
  uint64_t bytes;
  void *data; /* page-aligned, to read and write */
} meron_io_buffer_info;

/* A meron_io_buffer_info for the library to fill. */
#define MERON_IO_BUFFER_INFO_INIT \
  { MERON_SIZEOF_U32(meron_io_buffer_info), 0, 0, NULL }

/**
 * Address and size of a buffer.
 * @param out  struct_size set by the caller.
 * Ownership: the memory is borrowed until meron_io_buffer_release. Blocks: never. Threads: any.
 * Errors: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
 */
MERON_API MERON_NODISCARD meron_status meron_io_buffer_get_info(meron_io_buffer_info *out,
                                                                meron_io_buffer buffer,
                                                                meron_error **err);

/**
 * Releases a buffer. Its memory is freed after the last request that uses it has ended and a call
 * has waited for that request. The buffer outlives its io if that is closed first. Blocks: never on
 * the drive. Threads: any, also a finalizer's. Errors: MERON_E_HANDLE, MERON_E_STALE,
 * MERON_E_FORKED.
 */
MERON_API meron_status meron_io_buffer_release(meron_io_buffer buffer, meron_error **err);

MERON_END_DECLS

#endif /* MERON_IO_H */

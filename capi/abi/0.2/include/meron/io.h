/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meron/io.h: files read and written past the page cache, beside the threads that compute, as
 * DeepSpeed's DeepNVMe does it. Needs no context: it is this process' own, and knows no ranks.
 */
#ifndef MERON_IO_H
#define MERON_IO_H

#include "meron/base.h"
#include "meron/future.h"

MERON_BEGIN_DECLS

/* What reads and writes files: a queue to the kernel and the threads that serve it. A value; 0 is
 * null. */
typedef struct {
  uint64_t id;
} meron_io;

/* Pinned memory: page-aligned, and registered with the kernel where that is granted. A value; 0 is
 * null. */
typedef struct {
  uint64_t id;
} meron_io_buffer;

/* Who moves the bytes. */
typedef int32_t meron_io_backend;
enum {
  MERON_IO_AUTO = 0,    /* io_uring where the host allows it, else threads */
  MERON_IO_URING = 1,   /* io_uring */
  MERON_IO_THREADS = 2, /* threads of this process that call pread and pwrite */
  MERON_IO_BACKEND_FORCE_32_BITS = 0x7FFFFFFF
};

/* How files are read and written. */
typedef struct {
  uint32_t struct_size; /* sizeof(meron_io_options) */
  meron_io_backend backend;
  uint32_t block_bytes;    /* of one call of the kernel: a multiple of 4096; default 1 MiB */
  uint32_t depth;          /* calls under way at a time, 1 to 4096, of io_uring; default 32 */
  uint32_t threads;        /* 1 to 256, of the backend of threads: as many calls at a time */
  uint32_t single_submit;  /* 1: each call is handed to the kernel alone; default 0: together */
  uint32_t overlap_events; /* default 1; 0: the next calls begin when the last have ended */
  uint32_t reserved_0;     /* must be 0 */
  int64_t timeout_ns;      /* a wait ends when nothing has moved for so long; 0: 600 s */
} meron_io_options;

/* Initial value of a meron_io_options. */
#define MERON_IO_OPTIONS_INIT \
  { (uint32_t)sizeof(meron_io_options), MERON_IO_AUTO, 1 << 20, 32, 1, 0, 1, 0, 0 }

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
 * out of range), MERON_E_UNSUPPORTED (MERON_IO_URING where the host forbids io_uring: the message
 * says what does), MERON_E_NO_MEMORY, MERON_E_FORKED.
 */
MERON_API MERON_NODISCARD meron_status meron_io_open(meron_io *out, const meron_io_options *options,
                                                     meron_error **err);

/**
 * Reads `bytes` bytes of a file from `offset` on, and waits for them. Offset, length and memory
 * need no alignment. Whole pages go past the page cache, where the file system allows it and the
 * memory lies as the file does: both at multiples of the page, say. The rest goes through it.
 * @param path    of a regular file or a block device, as the host spells it.
 * @param data    `bytes` bytes of the caller's; may be NULL where `bytes` is 0.
 * @param offset  in bytes from the beginning of the file.
 * Ownership: the memory stays the caller's; after MERON_E_TIMEOUT the drive may still write to it,
 * until meron_io_wait or meron_io_close has returned. Blocks: on the drive, at most until nothing
 * has moved for the options' timeout_ns, and on the file system while the file is opened. Threads:
 * any; what is under way elsewhere must not write the same bytes. Errors: MERON_E_NOT_FOUND,
 * MERON_E_IO (the file ends before that: the message has the file, the offset, the bytes wanted and
 * those that are there; or what the drive says), MERON_E_ARGUMENT (no regular file),
 * MERON_E_TIMEOUT, MERON_E_NO_MEMORY, MERON_E_CLOSED (meanwhile), MERON_E_HANDLE, MERON_E_STALE,
 * MERON_E_FORKED.
 */
MERON_API MERON_NODISCARD meron_status meron_io_read(meron_io io, const char *path, void *data,
                                                     uint64_t bytes, uint64_t offset,
                                                     meron_error **err);

/**
 * Writes `bytes` bytes to a file from `offset` on, and waits until the kernel has taken them. Makes
 * the file where there is none, with what umask leaves of mode 0666; what it holds besides stays,
 * and so does its end. What must survive a loss of power needs a sync of the caller's own. A file
 * that has to grow gets its room before anything is written.
 * @param path    as meron_io_read.
 * @param data    `bytes` bytes, only read; may be NULL where `bytes` is 0.
 * @param offset  as meron_io_read; bytes that were never written before it read as 0.
 * Ownership: the memory stays the caller's; after MERON_E_TIMEOUT the drive may still read it, as
 * meron_io_read. Blocks: as meron_io_read. Threads: any; what is under way elsewhere must not read
 * or write the same bytes. Errors: as meron_io_read, MERON_E_NO_SPACE (a file that was to grow has
 * the size that it had), MERON_E_NOT_FOUND where the directory is not there.
 */
MERON_API MERON_NODISCARD meron_status meron_io_write(meron_io io, const char *path,
                                                      const void *data, uint64_t bytes,
                                                      uint64_t offset, meron_error **err);

/**
 * Begins a read. Requests begin in the order in which they are asked for, run side by side and end
 * in any order: who needs one before another waits. A request is a future: a wait for it ends also
 * when nothing has moved for the options' timeout_ns (MERON_E_TIMEOUT: it is still under way), with
 * MERON_E_IO or MERON_E_NO_SPACE (both name file, offset and bytes; no wait for all tells them
 * again), or with MERON_E_CLOSED (the io was closed before it ended). Released, one under way goes
 * on: its memory must stay, and meron_io_wait or meron_io_close tells how it ended.
 * @param out     receives the request.
 * @param path    as meron_io_read.
 * @param data    as meron_io_read.
 * @param offset  as meron_io_read.
 * Ownership: the caller releases *out; the memory must stay until the request has ended (that of a
 * meron_io_buffer does by itself). Blocks: on the file system while the file is opened, never on
 * the transfer. Threads: any. Errors: as meron_io_read; what the drive says comes from a wait.
 */
MERON_API MERON_NODISCARD meron_status meron_io_read_begin(meron_future *out, meron_io io,
                                                           const char *path, void *data,
                                                           uint64_t bytes, uint64_t offset,
                                                           meron_error **err);

/**
 * Begins a write; the file is made, and grows, here.
 * @param out     receives the request.
 * @param path    as meron_io_write.
 * @param data    as meron_io_write.
 * @param offset  as meron_io_write.
 * Ownership: as meron_io_read_begin; the memory must not change until the request has ended.
 * Blocks: as meron_io_read_begin. Threads: any. Errors: as meron_io_write; what the drive says
 * comes from a wait.
 */
MERON_API MERON_NODISCARD meron_status meron_io_write_begin(meron_future *out, meron_io io,
                                                            const char *path, const void *data,
                                                            uint64_t bytes, uint64_t offset,
                                                            meron_error **err);

/**
 * Waits for everything that was begun and not waited for alone, also where its handle was released.
 * @param timeout_ns  nanoseconds; MERON_TIMEOUT_DEFAULT: as long as something moves; 0: only asks.
 * Returns MERON_IN_PROGRESS when timeout_ns passed first; the requests go on.
 * Blocks: on the drive, at most until nothing has moved for the options' timeout_ns. Threads: any.
 * Errors: when all have ended, the first error of them, which names its file, and how many more
 * failed; MERON_E_TIMEOUT: nothing moves, and they are still under way; MERON_E_HANDLE,
 * MERON_E_STALE, MERON_E_FORKED.
 */
MERON_API MERON_NODISCARD meron_status meron_io_wait(meron_io io, int64_t timeout_ns,
                                                     meron_error **err);

/* What is known about an io. */
typedef struct {
  uint32_t struct_size;     /* sizeof(meron_io_info), set by the caller */
  meron_io_backend backend; /* in use: MERON_IO_URING or MERON_IO_THREADS */
  uint32_t block_bytes;     /* these as in meron_io_options */
  uint32_t depth;
  uint32_t threads;
  uint32_t single_submit;
  uint32_t overlap_events;
  uint32_t reserved_0;    /* 0 */
  uint64_t bytes_read;    /* by requests that have ended well */
  uint64_t bytes_written; /* likewise */
  uint64_t calls;         /* of the kernel that have ended */
  uint64_t direct_calls;  /* of them, those past the page cache */
  uint64_t requests;      /* reads and writes that were begun, the blocking ones too */
  uint64_t pending;       /* of them, those under way or not waited for */
  uint64_t buffer_bytes;  /* of buffers that are not gone */
} meron_io_info;

/**
 * Reads what is known about an io.
 * @param out  struct_size set by the caller.
 * Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE,
 * MERON_E_FORKED.
 */
MERON_API MERON_NODISCARD meron_status meron_io_get_info(meron_io_info *out, meron_io io,
                                                         meron_error **err);

/**
 * What a person should know about its speed, a line each: the backend and what the kernel has
 * granted it, why it is not a faster one, and which files go through the page cache, and why.
 * Ownership: the caller frees *out with meron_string_free. Blocks: never. Threads: any. Errors:
 * MERON_E_ARGUMENT, MERON_E_NO_MEMORY, MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
 */
MERON_API MERON_NODISCARD meron_status meron_io_describe(char **out, meron_io io,
                                                         meron_error **err);

/**
 * Closes the io. What is under way ends first; its handle is stale at once. Requests and buffers
 * stay until they are released.
 * Ownership: memory of requests is the caller's again, unless this returns MERON_E_CLOSED or
 * MERON_E_TIMEOUT: a drive has held some for longer and may still use it. Blocks: on the drive, at
 * most 5 s, or 10 s where it does not answer at all. Threads: any, also a finalizer's. Errors:
 * MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED, and with the io closed all the same: the first
 * error of requests that nobody has waited for.
 */
MERON_API meron_status meron_io_close(meron_io io, meron_error **err);

/**
 * Makes pinned memory of `bytes` bytes, which read as 0. The fastest to read into and write from,
 * though any memory will do.
 * Ownership: the caller releases *out. Blocks: until the host has given the memory. Threads: any.
 * Errors: MERON_E_ARGUMENT (no bytes), MERON_E_NO_MEMORY (the host, its cgroup or a limit),
 * MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED. Where the kernel does not register it, it is used
 * all the same (meron_io_describe says why).
 */
MERON_API MERON_NODISCARD meron_status meron_io_buffer_create(meron_io_buffer *out, meron_io io,
                                                              uint64_t bytes, meron_error **err);

/* What is known about a buffer. */
typedef struct {
  uint32_t struct_size; /* sizeof(meron_io_buffer_info), set by the caller */
  uint32_t registered;  /* 1: the kernel has it pinned; 0: it pins it at each call */
  uint64_t bytes;
  void *data; /* page-aligned, to read and write */
} meron_io_buffer_info;

/**
 * Where a buffer lies, and how large it is.
 * @param out  struct_size set by the caller.
 * Ownership: the memory is borrowed until meron_io_buffer_release. Blocks: never. Threads: any.
 * Errors: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
 */
MERON_API MERON_NODISCARD meron_status meron_io_buffer_get_info(meron_io_buffer_info *out,
                                                                meron_io_buffer buffer,
                                                                meron_error **err);

/**
 * Releases a buffer. Its memory goes when the last request that uses it has ended, and was waited
 * for; the buffer outlives its io where that is closed first.
 * Blocks: never on the drive. Threads: any, also a finalizer's. Errors: MERON_E_HANDLE,
 * MERON_E_STALE, MERON_E_FORKED.
 */
MERON_API meron_status meron_io_buffer_release(meron_io_buffer buffer, meron_error **err);

MERON_END_DECLS

#endif /* MERON_IO_H */

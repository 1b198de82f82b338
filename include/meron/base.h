/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meron/base.h: the base of all other headers: export marks, status codes, dtypes, the error
 * object, version. C99 and C++; includes only the C standard headers.
 */
#ifndef MERON_BASE_H
#define MERON_BASE_H

#include <stddef.h>
#include <stdint.h>

/*
 * MERON_NODISCARD warns of a status that is ignored. In C++17 and C23 a cast to void is enough to
 * ignore one on purpose; GCC accepts none for its own attribute.
 */
#if (defined(__cplusplus) && __cplusplus >= 201703L) || \
    (defined(__STDC_VERSION__) && __STDC_VERSION__ > 201710L)
#define MERON_NODISCARD [[nodiscard]]
#if defined(__GNUC__)
#define MERON_API [[gnu::visibility("default")]]
#else
#define MERON_API
#endif
#elif defined(__GNUC__)
#define MERON_API __attribute__((visibility("default")))
#define MERON_NODISCARD __attribute__((warn_unused_result))
#else
#define MERON_API
#define MERON_NODISCARD
#endif

#ifdef __cplusplus
#define MERON_BEGIN_DECLS extern "C" {
#define MERON_END_DECLS }
#else
#define MERON_BEGIN_DECLS
#define MERON_END_DECLS
#endif

#define MERON_VERSION_MAJOR 0
#define MERON_VERSION_MINOR 2
#define MERON_VERSION_PATCH 0
/* The version of these headers as one number, comparable: (major << 16) | (minor << 8) | patch. */
#define MERON_VERSION \
  ((MERON_VERSION_MAJOR << 16) | (MERON_VERSION_MINOR << 8) | MERON_VERSION_PATCH)

/* No rank, no peer: the value of a rank field that names no rank. */
#define MERON_RANK_NONE (-1)
/* The only negative timeout: leaves the bound to the context's deadline (meron_context_options). */
#define MERON_TIMEOUT_DEFAULT (-1)

MERON_BEGIN_DECLS

/*
 * Status of a call. 0 is success. A positive value is not an error ("not yet"). Negative values are
 * errors, grouped by their cause:
 *   -1xx the call: its arguments, its handles, or its place in the order of calls;
 *   -2xx a resource of this process or host: memory, a file, a drive, a device;
 *   -3xx another rank, or its lateness;
 *   -4xx the whole context is unusable.
 *
 * The class does not tell if the group is broken: call meron_group_status. A broken group gives
 * every further call, on every rank, the code that broke it, and says since when. After an error of
 * -1xx or -2xx nothing was changed, and the group works. It breaks if the ranks have begun
 * something together that this rank cannot end: it lacks memory for a unit or an optimizer, or a
 * drive, a device or memory fails it in a step, an update, a reduction or a gather (but see
 * meron_gather_begin). After an error of -3xx the group is broken, unless other ranks have no part
 * in it: it is one of meron_context_open, of a function without a context, of a drive or folder
 * that does not answer (MERON_E_TIMEOUT), or of a checkpoint's files (MERON_E_AUTH,
 * MERON_E_VERSION).
 */
typedef int32_t meron_status;
enum {
  MERON_OK = 0,
  MERON_IN_PROGRESS = 1,

  MERON_E_ARGUMENT = -100,    /* a null pointer, a wrong size, an unknown enum value */
  MERON_E_HANDLE = -101,      /* a null handle, of another kind, or of another context */
  MERON_E_STALE = -102,       /* a handle whose object was released or closed */
  MERON_E_STATE = -103,       /* the call is valid, but not in the object's present state */
  MERON_E_DUPLICATE = -104,   /* a name or an object given twice */
  MERON_E_UNSUPPORTED = -105, /* valid, but this build or this plan does not offer it */
  MERON_E_PARSE = -106,       /* text that does not parse; the message has line and key */
  MERON_E_NONFINITE = -107,   /* gradients hold NaN or infinity, or a step makes a value infinite */
  MERON_E_CANCELLED = -108,   /* should_stop ended a wait, or a rank cancelled the save */

  MERON_E_NO_MEMORY =
      -200,          /* no memory, or the context's limit is reached; the message has the figures */
  MERON_E_IO = -201, /* a file, a socket or a mapping failed */
  MERON_E_NOT_FOUND = -202, /* a file or a key does not exist */
  MERON_E_CORRUPT =
      -203, /* a drive returned other bytes than were written: the message says where */
  MERON_E_NO_SPACE = -204, /* a drive is full; the message has need and free bytes */
  MERON_E_DEVICE = -205,   /* a device has failed: this process cannot use it any more */

  MERON_E_TIMEOUT = -300,     /* a deadline passed: the message says who has not arrived */
  MERON_E_PEER_DEAD = -301,   /* a rank's process is gone: the error's peer */
  MERON_E_PEER_CLOSED = -302, /* a rank, the error's peer, closed its context too early */
  MERON_E_MISMATCH = -303,    /* ranks made different calls: the message has both */
  MERON_E_ABORTED = -304,     /* a rank called meron_group_abort, or cancelled an update */
  MERON_E_AUTH = -305,        /* a wrong token, a peer of another user, or a link in a checkpoint */
  MERON_E_VERSION = -306,     /* a rank, the caller's headers or a file are of another version */

  MERON_E_FORKED = -400,   /* this process is a fork of the one that opened the context */
  MERON_E_CLOSED = -401,   /* closed by another thread during the call; then MERON_E_STALE */
  MERON_E_INTERNAL = -402, /* a defect of Meron: please report it */
};

/* Element types. Sizes in bytes: 4, 2, 2, 8, 8. */
typedef int32_t meron_dtype;
enum {
  MERON_F32 = 0,
  MERON_BF16 = 1,
  MERON_F16 = 2,
  MERON_F64 = 3, /* of meron_all_reduce_begin alone, as the next one */
  MERON_I64 = 4,
};

/*
 * The error object: the caller who receives it owns it, and frees it by meron_error_free. Functions
 * that can fail take an optional `meron_error **` last. A failure sets *err to a new object (NULL
 * without memory for one), whatever it held: free an earlier one first. A success leaves it alone.
 * A failure leaves what the call would return (*out) alone.
 */
typedef struct meron_error meron_error;

/**
 * The error's status code; MERON_OK for NULL.
 * Blocks: never. Threads: any. Errors: none.
 */
MERON_API meron_status meron_error_code(const meron_error *error);

/**
 * The full message for people: the failure, the rank, the operation, the tensor or file, and the
 * remedy. UTF-8, one paragraph. Ownership: borrowed from the error. Blocks: never. Threads: any.
 * Errors: none ("" for NULL).
 */
MERON_API const char *meron_error_message(const meron_error *error);

/**
 * The operation that failed, for example "gather" or "context_open"; "" if none applies. Ownership:
 * borrowed from the error. Blocks: never. Threads: any. Errors: none.
 */
MERON_API const char *meron_error_operation(const meron_error *error);

/**
 * The tensor, unit, file or key concerned; "" if none applies. Ownership: borrowed from the error.
 * Blocks: never. Threads: any. Errors: none.
 */
MERON_API const char *meron_error_subject(const meron_error *error);

/**
 * The remedy, as one sentence; "" if none is known. Ownership: borrowed from the error. Blocks:
 * never. Threads: any. Errors: none.
 */
MERON_API const char *meron_error_advice(const meron_error *error);

/**
 * The rank that reports the error, or MERON_RANK_NONE.
 * Blocks: never. Threads: any. Errors: none.
 */
MERON_API int32_t meron_error_rank(const meron_error *error);

/**
 * The rank that caused the error when it is another one (dead, late, diverging), or
 * MERON_RANK_NONE.
 * Blocks: never. Threads: any. Errors: none.
 */
MERON_API int32_t meron_error_peer(const meron_error *error);

/**
 * Frees an error. NULL is allowed.
 * Ownership: takes the error. Blocks: never. Threads: any, also a finalizer's. Errors: none.
 */
MERON_API void meron_error_free(meron_error *error);

/**
 * The constant's name, for example "MERON_E_TIMEOUT"; "MERON_E_UNKNOWN" for a code that this
 * version does not know.
 * Ownership: static. Blocks: never. Threads: any. Errors: none.
 */
MERON_API const char *meron_status_name(meron_status status);

/**
 * The library's version in the form of MERON_VERSION. Compatible with a caller's headers when the
 * major numbers are equal (and, before 1.0, the minor numbers) and it is not older than they are.
 * Blocks: never. Threads: any. Errors: none.
 */
MERON_API uint32_t meron_version(void);

/**
 * The library's version as text, for example "0.2.0".
 * Ownership: static. Blocks: never. Threads: any. Errors: none.
 */
MERON_API const char *meron_version_string(void);

/**
 * Describes this host and this build, as JSON: version, compiler, CPU features and the kernel
 * target in use, transports with the reason if one is unavailable, memory, huge pages, /dev/shm,
 * memlock limit, io_uring.
 * @param out  receives the text.
 * Ownership: the caller frees *out with meron_string_free. Blocks: never (reads /proc).
 * Threads: any. Errors: MERON_E_ARGUMENT, MERON_E_NO_MEMORY.
 */
MERON_API MERON_NODISCARD meron_status meron_system_info(char **out, meron_error **err);

/**
 * Frees a string that a function of this library returned. NULL is allowed. Blocks: never. Threads:
 * any, also a finalizer's. Errors: none.
 */
MERON_API void meron_string_free(char *string);

/**
 * Bytes per element of a dtype; 0 for an unknown one.
 * Blocks: never. Threads: any. Errors: none.
 */
MERON_API size_t meron_dtype_size(meron_dtype dtype);

MERON_END_DECLS

/* The size of a struct, for the INIT macros; without a cast that C++ warns of. */
#ifdef __cplusplus
#define MERON_SIZEOF_U32(type) static_cast<uint32_t>(sizeof(type))
#else
#define MERON_SIZEOF_U32(type) ((uint32_t)sizeof(type))
#endif

#endif /* MERON_BASE_H */

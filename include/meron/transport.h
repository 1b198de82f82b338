/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meron/transport.h: the caller's own transport, which moves bytes between ranks that share no
 * memory. A program that can send bytes from rank to rank (MPI, torch.distributed, sockets, a
 * queue) fills a meron_transport and passes it as meron_context_options::custom. Meron builds its
 * collectives, its checks and its failure handling on send and receive alone.
 *
 * Rules for the functions:
 *
 *   - They never block, except for `idle`, and may only look and release: see the rule of callbacks
 *     in meron/meron.h.
 *   - They are called by threads that are inside a call on the context, one at a time and
 *     without a lock of Meron.
 *   - Tags are at least 0 and below 2^28.
 *   - A message goes to the receive of the same tag that its destination started for this rank;
 *     several of one tag in the order in which they were started.
 *   - Sends and receives may be started in any order on both sides: a message whose receive has not
 *     been started yet waits, and must not keep those of other tags from arriving.
 *   - Exceptions of their language must not leave them: they return a status.
 *
 * A negative status ends the use of that peer: its groups break with MERON_E_PEER_DEAD, and the
 * message has the status' name.
 */
#ifndef MERON_TRANSPORT_H
#define MERON_TRANSPORT_H

#include "meron/base.h"

MERON_BEGIN_DECLS

/*
 * Starts to send `bytes` bytes at `data` to rank `peer`. They stay in place and unchanged until the
 * request is done or cancelled. Stores a number of the transport's choice in *request, which
 * identifies the request from then on, and returns MERON_OK. Returns MERON_IN_PROGRESS if it cannot
 * accept the message now: Meron will call it again. `bytes` may be 0.
 */
typedef meron_status (*meron_send_fn)(void *user, uint64_t *request, int32_t peer, uint64_t tag,
                                      const void *data, uint64_t bytes);

/*
 * Starts to receive a message of at most `bytes` bytes from rank `peer` into `data`. Otherwise as
 * meron_send_fn.
 */
typedef meron_status (*meron_receive_fn)(void *user, uint64_t *request, int32_t peer, uint64_t tag,
                                         void *data, uint64_t bytes);

/*
 * Tests if a request is done: MERON_OK, with the size of the message in *bytes, or
 * MERON_IN_PROGRESS. A request that is done, or failed, is not tested again. The transport may also
 * make progress here.
 */
typedef meron_status (*meron_test_fn)(void *user, uint64_t request, uint64_t *bytes);

/* Cancels a request. After the return its memory is not touched. */
typedef void (*meron_cancel_fn)(void *user, uint64_t request);

/*
 * Returns when a message may have progressed, or after `timeout_ns` nanoseconds. Only this function
 * may block, and at most for that time.
 */
typedef void (*meron_idle_fn)(void *user, int64_t timeout_ns);

/* Returns 0 only if rank `peer` is known to be dead. */
typedef int32_t (*meron_alive_fn)(void *user, int32_t peer);

/* The last call of the table: no other function is called after it. Called once, by the call that
 * closes the context. */
typedef void (*meron_closed_fn)(void *user);

/* The caller's transport. Read when the context is opened; `user` must outlive the context. */
typedef struct {
  uint32_t struct_size; /* sizeof(meron_transport) */
  uint32_t reserved_0;  /* must be 0 */
  const char *name;     /* for messages; NULL: "custom" */
  void *user;           /* passed to every function */
  uint64_t max_message; /* maximal bytes of a message, at least 4096; 0: no limit */
  meron_send_fn send;
  meron_receive_fn receive;
  meron_test_fn test;
  meron_cancel_fn cancel;
  meron_idle_fn idle;     /* NULL: Meron sleeps for up to a millisecond between tests */
  meron_alive_fn alive;   /* NULL: a peer is dead if send, receive or test fails */
  meron_closed_fn closed; /* NULL: no notification */
} meron_transport;

/* Initial value of a meron_transport. */
#define MERON_TRANSPORT_INIT \
  { MERON_SIZEOF_U32(meron_transport), 0, NULL, NULL, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL }

/**
 * Fills the first `struct_size` bytes of *transport with zeros and its size (for languages without
 * macros).
 * Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT.
 */
MERON_API MERON_NODISCARD meron_status meron_transport_init(meron_transport *transport,
                                                            size_t struct_size, meron_error **err);

MERON_END_DECLS

#endif /* MERON_TRANSPORT_H */
